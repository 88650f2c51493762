"""Counts: update the counters for puts and pulls. Python twin: `stats/counters.py`."""

from broker_core.stats.latency import FINE_MS
from broker_core.stats.latency import Latency as LatencyType
from broker_core.stats.windows import StatsItem as ItemType

cdef enum:
    BOUNDS_MAX = 32

cdef Py_ssize_t ITEM_TIMES = slot_of_class(ItemType, "times")
cdef Py_ssize_t ITEM_VALUE = slot_of_class(ItemType, "value")
cdef Py_ssize_t LATENCY_BUCKETS = slot_of_class(LatencyType, "buckets")
cdef Py_ssize_t LATENCY_LONGEST_S = slot_of_class(LatencyType, "longest_s")
cdef Py_ssize_t LATENCY_MAX_MS = slot_of_class(LatencyType, "max_ms")
cdef Py_ssize_t LATENCY_SERVED = slot_of_class(LatencyType, "served")
cdef Py_ssize_t LATENCY_TOTAL_MS = slot_of_class(LatencyType, "total_ms")
cdef double[BOUNDS_MAX] BOUNDS
cdef int BOUND_COUNT = len(FINE_MS)

if BOUND_COUNT > BOUNDS_MAX:
    raise ImportError("latencies have more bounds than the turn knows")
for number in range(BOUND_COUNT):
    BOUNDS[number] = FINE_MS[number]


cdef inline int add(owner, Py_ssize_t at, int64_t more) except -1:
    """Add to the number in a slot."""
    return set_number(owner, at, number_slot(owner, at) + more)


cdef inline int count_calls(item, int64_t value, int64_t times) except -1:
    """Add to a counter and to its number of calls."""
    add(item, ITEM_VALUE, value)
    return add(item, ITEM_TIMES, times)


cdef int time_some(latency, double seconds, int64_t requests) except -1:
    """Count requests that held the event loop until they were answered, as `Latency.answered` does.
    """
    cdef double took_ms = seconds * 1000.0
    cdef int bucket = 0
    cdef list buckets = <list>slot(latency, LATENCY_BUCKETS)
    while bucket < BOUND_COUNT and BOUNDS[bucket] < took_ms:
        bucket += 1
    buckets[bucket] += requests
    set_real(latency, LATENCY_TOTAL_MS, real_slot(latency, LATENCY_TOTAL_MS) + took_ms * requests)
    if took_ms > real_slot(latency, LATENCY_MAX_MS):
        set_real(latency, LATENCY_MAX_MS, took_ms)
    if seconds > real_slot(latency, LATENCY_LONGEST_S):
        set_real(latency, LATENCY_LONGEST_S, seconds)
    return 0


cdef class _Reading


@cython.final
cdef class Counts:
    """The counters of one broker. Event loop only."""

    cdef object _stats, _broker_put, _broker_get
    cdef dict _puts

    def __init__(self, stats):
        self._stats = exactly(StatsType, stats)
        self._puts = stats.puts
        self._broker_put = exactly(ItemType, stats.broker_put)
        self._broker_get = exactly(ItemType, stats.broker_get)

    cdef int put(self, topic, int64_t calls, int64_t messages, int64_t size) except -1:
        """Count the messages that `calls` sends stored together, as `put_each` does."""
        flow = self._puts.get(topic)
        if flow is None:
            self._stats.put_each(topic, calls, messages, size)
            return 0
        count_calls((<tuple>flow)[0], messages, calls)
        count_calls((<tuple>flow)[1], size, calls)
        add(self._broker_put, ITEM_VALUE, messages)
        return 0

    cdef int got(self, _Reading reading, int64_t messages, int64_t size) except -1:
        """Count the messages that a pull returned, as `got` does."""
        gets = slot(self._stats, STATS_GETS)
        if reading.gets is not gets:
            place = (reading.topic, reading.group, reading.queue_id)
            reading.flow = (<dict>gets).get(place)
            if reading.flow is None:
                self._stats.got(*place, messages, size)
                return 0
            reading.gets = gets
        flow = <tuple>reading.flow
        count_calls(flow[0], messages, 1)
        count_calls(flow[1], size, 1)
        if flow[2] is not None:
            add(flow[2], ITEM_TIMES, 1)
        add(self._broker_get, ITEM_VALUE, messages)
        return 0
