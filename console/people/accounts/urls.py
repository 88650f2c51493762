"""URL patterns for sign-in, sign-out and passwords."""

from __future__ import annotations

from django.urls import path, reverse_lazy

from console.people.accounts import oidc_views, second_step_views, views

app_name = "accounts"
urlpatterns = [
    path("sign-in/", views.SignIn.as_view(), name="sign-in"),
    path("oidc/", oidc_views.begin, name="oidc"),
    path("oidc/callback/", oidc_views.callback, name="oidc-callback"),
    path("code/", second_step_views.code, name="code"),
    path("second-step/", second_step_views.state, name="second-step"),
    path("second-step/set-up/", second_step_views.set_up, name="second-step-set-up"),
    path("second-step/codes/", second_step_views.renew_codes, name="second-step-codes"),
    path("second-step/off/", second_step_views.turn_off, name="second-step-off"),
    path("join/<str:token>/", views.join, name="join"),
    path("sessions/", views.sessions, name="sessions"),
    path("sessions/end/", views.end_sessions, name="sessions-end"),
    path("sessions/<int:session>/end/", views.end_session, name="session-end"),
    path("sign-out/", views.SignOut.as_view(), name="sign-out"),
    path(
        "password/",
        views.ChangePassword.as_view(success_url=reverse_lazy("overview:index")),
        name="password",
    ),
]
