from __future__ import annotations

from hypothesis import given, strategies as st

from broker_core.grpc_services.message_groups import queue_of_group


def test_the_queue_equals_guavas_consistent_hash() -> None:
    # Values from HashingTest.testConsistentHash_linearCongruentialGeneratorCompatibility. Java's
    # hash of a single character is its code.
    published = {1: 55, 2: 62, 3: 8, 4: 45, 5: 59}

    found = {number: queue_of_group(chr(number), 100) for number in published}

    assert found == published


@given(st.text(max_size=20))
def test_more_queues_move_a_group_to_a_new_queue_or_not_at_all(group: str) -> None:
    # HashingTest.testConsistentHash_correctness; half of all hashes are negative.
    before = 0
    for queues in range(1, 64):
        queue = queue_of_group(group, queues)
        assert queue in (before, queues - 1)
        before = queue


def test_a_negative_hash_is_sign_extended_to_64_bits() -> None:
    # Java's hash of this text is -2147483648; as 2147483648 it would give queues 3 and 94.
    assert queue_of_group("polygenelubricants", 4) == 2
    assert queue_of_group("polygenelubricants", 100) == 58
