"""URL patterns of the people pages."""

from __future__ import annotations

from django.urls import path

from console.people.accounts import people_views as views, role_views, second_step_views

app_name = "people"
urlpatterns = [
    path("", views.listing, name="list"),
    path("invite/", views.invite, name="invite"),
    path("invitations/<int:invitation>/delete/", views.withdraw, name="withdraw"),
    path("roles/", role_views.listing, name="roles"),
    path("roles/new/", role_views.create, name="role-create"),
    path("roles/<int:role>/", role_views.edit, name="role-edit"),
    path("roles/<int:role>/delete/", role_views.delete, name="role-delete"),
    path("<int:person>/", views.detail, name="detail"),
    path("<int:person>/role/", views.change_role, name="role"),
    path("<int:person>/switch/", views.switch, name="switch"),
    path("<int:person>/sessions/end/", views.end_sessions, name="sessions-end"),
    path("<int:person>/sessions/<int:session>/end/", views.end_session, name="session-end"),
    path("<int:person>/second-step/off/", second_step_views.turn_off_for, name="second-step-off"),
    path("<int:person>/remove/", views.remove, name="remove"),
]
