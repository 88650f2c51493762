"""Health endpoints for supervisors."""

from __future__ import annotations

from django.contrib.auth.decorators import login_not_required
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe


@login_not_required
@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """Return 200 while the process is alive."""
    return JsonResponse({"status": "ok"})


@login_not_required
@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """Return whether pages can be served: the database responds and its tables are current.

    The console is ready even if a broker is down: its pages explain that.
    """
    try:
        executor = MigrationExecutor(connection)
        behind = bool(executor.migration_plan(executor.loader.graph.leaf_nodes()))
    except DatabaseError:
        return JsonResponse({"status": "unready", "reason": "database"}, status=503)
    if behind:
        return JsonResponse({"status": "unready", "reason": "migrations"}, status=503)
    return JsonResponse({"status": "ok"})
