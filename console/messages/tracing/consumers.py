"""The WebSocket of the Live page.

Frames to the browser: `viewer` (its token), `status`, `events` (with counters), `problem`. Frames
from the browser: `filter`, `pause`, `resume`, `clear`, and as the first one after a lost
connection, `resume_viewer`. The socket closes within seconds of its session's end, and always
applies the person's current rights (console/accounts/session_watch.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.utils import translation
from django.utils.translation import gettext
from uvicorn.protocols.utils import ClientDisconnected

from console.accounts.rights import rights_of
from console.messages.tracing.bridge import TooManyViewersError, TraceBridge, Viewer
from console.messages.tracing.filters import FilterError, parse_filter, require_visible
from console.ui.languages import language_of

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from console.accounts.session_watch import SessionWatch

logger = logging.getLogger(__name__)

PEER_GONE = (ConnectionError, ClientDisconnected)
"""Errors that sending raises when the browser has disconnected."""

INPUT_BYTES_MAX = 64 * 1024
ROUND_MAX = 1 << 53

CLOSE_TOO_BIG = 1009
CLOSE_FAILED = 1011
CLOSE_SIGNED_OUT = 4401
CLOSE_TOO_MANY = 4429
CLOSED_BY_PAGE = frozenset({1000, 1001, CLOSE_TOO_BIG, CLOSE_SIGNED_OUT})


class TraceConsumer(AsyncWebsocketConsumer):  # type: ignore[misc]  # channels has no types
    """One socket of one signed-in user."""

    # No layer has this name: message data never goes through one.
    channel_layer_alias = "none"

    def __init__(self, bridge: TraceBridge, sessions: SessionWatch) -> None:
        super().__init__()
        self._bridge = bridge
        self._sessions = sessions
        self._viewer: Viewer | None = None
        self._pumping: asyncio.Task[None] | None = None
        self._following: asyncio.Task[None] | None = None
        self._is_announced = False

    async def connect(self) -> None:
        user = self.scope.get("user")
        if user is None or not user.is_authenticated:
            # Closing before `accept` answers the request with 403.
            await self.close()
            return
        await self.accept()
        # For this socket's tasks only: each has its own context.
        translation.activate(language_of(self.scope))
        viewer = Viewer(user.pk, await database_sync_to_async(rights_of)(user))
        try:
            self._bridge.join(viewer)
        except TooManyViewersError:
            await self._problem(
                gettext("You have live tracing open in too many windows. Close one, then reload.")
            )
            await self.close(code=CLOSE_TOO_MANY)
            return
        self._viewer = viewer
        loop = asyncio.get_running_loop()
        self._pumping = loop.create_task(self._pump(viewer), name="trace pump")
        follow = self._follow_session(user.pk)
        self._following = loop.create_task(closing_on_failure(self, follow), name="trace session")

    async def disconnect(self, code: int) -> None:
        await ended(self._pumping, self._following)
        viewer, self._viewer = self._viewer, None
        if viewer is None:
            return
        if code in CLOSED_BY_PAGE or not self._is_announced:
            await self._bridge.leave(viewer)
        else:
            self._bridge.park(viewer)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        if self._viewer is None:
            return
        if text_data is None or len(text_data.encode()) > INPUT_BYTES_MAX:
            await self.close(code=CLOSE_TOO_BIG)
            return
        try:
            content = msgspec.json.decode(text_data, type=dict[str, Any])
            if content.get("type") == "resume_viewer":
                await self._resume(self._viewer, content)
            else:
                await self._obey(self._viewer, content)
            await self._announce()
        except FilterError as error:
            await self._problem(str(error))
        except (ValueError, RecursionError):
            await self._problem(gettext("The console doesn't understand this message."))

    async def _announce(self) -> None:
        """Send the page, once, the token with which it can return."""
        if self._viewer is not None and not self._is_announced:
            self._is_announced = True
            frame = msgspec.json.encode({"type": "viewer", "token": self._viewer.token})
            await self.send(text_data=frame.decode())

    async def _resume(self, viewer: Viewer, content: dict[str, Any]) -> None:
        """Resume a recently lost connection."""
        token, up_to = content.get("token"), content.get("upTo")
        if not isinstance(token, str) or type(up_to) is not int or self._is_announced:
            raise FilterError(gettext("The console doesn't understand this message."))
        former = self._bridge.take_parked(token, viewer.user_id)
        if former is None:
            return
        await ended(self._pumping)
        former.apply_rights(viewer.rights)
        self._viewer = former
        await self._bridge.leave(viewer)
        await self._announce()
        former.resend_after(up_to)
        self._pumping = asyncio.get_running_loop().create_task(
            self._pump(former), name="trace pump"
        )

    async def _obey(self, viewer: Viewer, content: dict[str, Any]) -> None:
        match content.get("type"):
            case "filter":
                wanted, number = parse_filter(content), round_of(content)
                await database_sync_to_async(require_visible)(wanted)
                if not self._bridge.has_room_for(wanted):
                    raise FilterError(
                        gettext("Too many different filters are in use. Try again later.")
                    )
                viewer.show(wanted, number)
                self._bridge.refilter()
            case "pause":
                viewer.paused = True
            case "resume":
                viewer.resume()
            case "clear":
                viewer.clear(round_of(content))
            case _:
                raise FilterError(
                    gettext("The message's type must be filter, pause, resume or clear.")
                )

    async def _pump(self, viewer: Viewer) -> None:
        """Send queued events, at most one batch every `batch_every_s`."""
        await closing_on_failure(self, self._send_forever(viewer))

    async def _send_forever(self, viewer: Viewer) -> None:
        while True:
            await viewer.wait_for_events()
            for frame in viewer.take():
                # Waits while the browser reads slowly; meanwhile the queue drops its oldest events.
                await self.send(text_data=frame.decode())
            await asyncio.sleep(self._bridge.batch_every_s)

    async def _follow_session(self, account_id: int) -> None:
        key = getattr(self.scope.get("session"), "session_key", None)
        async for rights in self._sessions.rights(key, account_id):
            if self._viewer is not None:
                self._viewer.apply_rights(rights)
                await self._require_visible(self._viewer)
        await self.close(code=CLOSE_SIGNED_OUT)

    async def _require_visible(self, viewer: Viewer) -> None:
        """Remove a filter on a property that a masking rule now hides."""
        try:
            await database_sync_to_async(require_visible)(viewer.filter)
        except FilterError as error:
            viewer.show(replace(viewer.filter, named=None), viewer.round)
            self._bridge.refilter()
            await self._problem(str(error))

    async def _problem(self, sentence: str) -> None:
        frame = msgspec.json.encode({"type": "problem", "message": sentence})
        with contextlib.suppress(*PEER_GONE):
            await self.send(text_data=frame.decode())


async def closing_on_failure(
    consumer: AsyncWebsocketConsumer, work: Coroutine[Any, Any, None]
) -> None:
    """Await a socket's background work; if it fails, close the socket, so that the page reconnects.

    An open socket would show nothing new, or outlive its session.
    """
    try:
        await work
    except PEER_GONE:
        return
    except Exception:
        logger.exception("socket closed, its background work failed")
        with contextlib.suppress(Exception):
            await consumer.close(code=CLOSE_FAILED)


async def ended(*tasks: asyncio.Task[None] | None) -> None:
    """Cancel tasks and wait for them to end."""
    running = [task for task in tasks if task is not None]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


def round_of(content: dict[str, Any]) -> int:
    """Return the number that the page gave this message; the events that follow carry it.

    Raises:
        FilterError: a browser can't represent the number exactly.
    """
    number = content.get("round", 0)
    if not isinstance(number, int) or not 0 <= number < ROUND_MAX:
        raise FilterError(gettext("The message's round must be a whole number."))
    return number
