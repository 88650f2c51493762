"""The clients app."""

from __future__ import annotations

from django.apps import AppConfig


class ClientsConfig(AppConfig):
    """Registers the clients app; its label is part of migrations and permissions."""

    name = "console.broker.clients"
    label = "clients"
