"""What a query may read: the lake's views as one person sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError

from analytics.errors import LakeError
from analytics.lake.tables import MESSAGES
from analytics.lake.views import files_in, lake_views

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from analytics.lake.masks import Mask
    from analytics.lake.place import LakePlace
    from analytics.lake.views import LakeView


@dataclass(frozen=True, slots=True)
class View:
    """A view of the lake, and the files of its table as they are now.

    Attributes:
        files: paths, or addresses in S3; none while nothing has been written to the table.
        topics: the only ones whose rows are in the view, None for all.
        masks: what is hidden in its messages.
    """

    lake_view: LakeView
    files: tuple[str, ...]
    topics: tuple[str, ...] | None
    masks: tuple[Mask, ...] = ()

    @property
    def name(self) -> str:
        return self.lake_view.name


def views_of(
    place: LakePlace, topics: Collection[str] | None = None, masks: Sequence[Mask] = ()
) -> list[View]:
    """Return the views as they are now, none while the lake has no message.

    Args:
        topics: where given, rows of other topics are not there, nor are tables that do not say
            which topic a row is of.
        masks: what is hidden in messages.

    Raises:
        LakeError: the lake cannot be read.
    """
    kept = None if topics is None else tuple(sorted(topics))
    try:
        if not MESSAGES.exists(place):
            return []
        return [
            View(view, tuple(sorted(files_in(place, view))), kept, tuple(masks))
            for view in lake_views()
            if kept is None or view.has_topic
        ]
    except (DeltaError, OSError) as error:
        what = str(error).partition("\n")[0].rstrip(".")
        raise LakeError(f"The lake {place.uri} cannot be read: {what}.") from error
