"""The clusters and faults that chaos seeds choose."""

from __future__ import annotations

from tools.faults.schedules import TARGETS, FaultKind, Role
from tools.faults.variants import (
    MEMBERS,
    ORIGINAL_MASTER,
    ORIGINAL_SLAVE,
    OURS,
    SKEW_SECONDS,
    variant,
)

SEEDS = range(200)
MEMBERS_WITH_CLOCKS = ("", ORIGINAL_MASTER, ORIGINAL_SLAVE)


def test_seeds_choose_all_members_disks_clocks_and_checks() -> None:
    found = [variant(seed) for seed in SEEDS]

    assert {one.members for one in found} == set(MEMBERS)
    assert {one.loses_power for one in found} == {False, True}
    assert {one.has_checks for one in found} == {False, True}
    assert all(one.has_real for one in found)
    assert {one.skew > 0 for one in found} == {False, True}
    assert max(one.skew for one in found) <= 2 * SKEW_SECONDS


def test_explicit_options_take_precedence_over_the_seed() -> None:
    for seed in SEEDS:
        assert variant(seed, ORIGINAL_SLAVE).members == ORIGINAL_SLAVE
        raw = variant(seed, has_real=False)
        assert not raw.has_real
        # No client could answer checks.
        assert not raw.has_checks


def test_power_cuts_happen_only_if_acknowledged_data_was_flushed_by_our_broker() -> None:
    for seed in SEEDS:
        one = variant(seed)
        if one.loses_power:
            assert one.flush_disk_type == "SYNC_FLUSH"
            assert one.members not in (ORIGINAL_MASTER, ORIGINAL_SLAVE)
        assert (FaultKind.POWER in one.targets) == one.loses_power


def test_an_originals_disk_and_clock_are_left_alone_and_it_is_not_promoted() -> None:
    for members, role in ((ORIGINAL_MASTER, Role.MASTER), (ORIGINAL_SLAVE, Role.SLAVE)):
        one = variant(1, members)
        assert FaultKind.FAILOVER not in one.targets
        for kind in (FaultKind.DISK_FULL, FaultKind.DISK_SLOW, FaultKind.DISK_FAILS):
            assert {place[0] for place in one.targets[kind]} == {Role.MASTER, Role.SLAVE} - {role}
        assert all(place[0] is not role for place in one.targets[FaultKind.CLOCK])
        assert one.skews[MEMBERS_WITH_CLOCKS.index(members)] == 0
    assert variant(13, OURS).targets == TARGETS


def test_a_pair_with_the_original_as_master_is_judged_by_our_slave() -> None:
    judged = variant(1, ORIGINAL_MASTER)
    assert judged.is_judged("I25")
    assert not judged.is_judged("I1")
    assert all(variant(1, members).is_judged("I1") for members in (OURS, MEMBERS[1]))
