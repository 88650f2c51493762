"""The addresses for clients, and snippets with them."""

from __future__ import annotations

from typing import Any

from django import template

from console.connect.addresses import client_addresses
from console.connect.snippets import snippets_for

register = template.Library()


@register.inclusion_tag("connect/addresses.html")
def client_address_line() -> dict[str, Any]:
    """Render the address for remoting clients and the one for gRPC clients."""
    return {"addresses": client_addresses()}


@register.inclusion_tag("connect/snippets.html")
def client_snippets() -> dict[str, Any]:
    """Render the addresses, then a snippet for each client."""
    addresses = client_addresses()
    return {"addresses": addresses, "snippets": snippets_for(addresses)}
