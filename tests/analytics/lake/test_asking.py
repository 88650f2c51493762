"""DuckDB for somebody who waits: what SQL there knows beside DuckDB's own."""

from __future__ import annotations

import pytest

from analytics.lake.asking import asking


@pytest.mark.parametrize(
    ("moment_us", "step_seconds", "begins_s"),
    [
        (1_795_251_442_123_456, 60, 1_795_251_420),
        (1_795_251_420_000_000, 60, 1_795_251_420),
        (1_795_251_419_999_999, 60, 1_795_251_360),
        (1_795_251_442_123_456, 86_400, 1_795_219_200),
        (1_795_251_442_123_456, 604_800, 1_795_046_400),
        (0, 300, 0),
    ],
)
@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMPTZ"])
def test_a_step_of_time_begins_at_a_whole_number_of_steps_since_the_epoch(
    kind: str, moment_us: int, step_seconds: int, begins_s: int
) -> None:
    with asking() as connection:
        # Once as a constant, once of a column, which is another way through DuckDB.
        ((at, of_column),) = connection.execute(
            "SELECT epoch(start_of_step(make_timestamp($at), $step)), "
            "(SELECT epoch(start_of_step(minute, $step)) FROM "
            f"(SELECT make_timestamp($at)::{kind} AS minute FROM range(1)))",
            {"at": moment_us, "step": step_seconds},
        ).fetchall()

    assert at == of_column == begins_s
    assert begins_s % step_seconds == 0
