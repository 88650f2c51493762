"""How far a slave is behind its master's reported end."""

from __future__ import annotations

from broker_core.ha.master_ends import MasterEnds, SlaveLag


def test_before_the_first_answer_nothing_is_known() -> None:
    assert MasterEnds().behind(5.0, 0) is None


def test_a_slave_with_the_masters_reported_data_is_not_behind() -> None:
    ends = MasterEnds()
    ends.note(10.0, 100)

    assert ends.behind(40.0, 100) == SlaveLag(0, 0.0)
    assert ends.behind(40.0, 150) == SlaveLag(0, 0.0)


def test_it_is_behind_since_the_first_answer_that_names_missing_data() -> None:
    ends = MasterEnds()
    for at, end in ((10.0, 100), (20.0, 200), (30.0, 300)):
        ends.note(at, end)

    assert ends.behind(35.0, 100) == SlaveLag(200, 15.0)
    assert ends.behind(35.0, 250) == SlaveLag(50, 5.0)


def test_a_truncated_log_starts_over() -> None:
    ends = MasterEnds()
    ends.note(10.0, 300)
    ends.note(20.0, 200)

    assert ends.behind(25.0, 200) == SlaveLag(0, 0.0)
    assert ends.behind(25.0, 150) == SlaveLag(50, 5.0)


def test_a_silent_master_is_not_considered_reached() -> None:
    ends = MasterEnds()
    ends.note(10.0, 100)

    assert ends.behind(45.0, 100) == SlaveLag(0, 0.0)
    assert ends.behind(45.001, 100) is None
