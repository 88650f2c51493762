"""Slots: read and write the fields of the broker's objects directly in memory.

A lookup by name takes about ninety instructions, and a turn does a dozen for each queue. A class
with `__slots__` keeps each field at a fixed offset given by the field's descriptor. Objects must be
of exactly the expected class; others are left to Python.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_CLEAR, Py_INCREF, Py_XDECREF, Py_XINCREF

from broker_core.clients.consumers import ConsumerGroup as GroupType
from broker_core.clients.consumers import ConsumerMember as MemberType
from broker_core.clients.consumers import Consumers as ConsumersType
from broker_core.clients.consumers import Subscription as SubscriptionType
from broker_core.config.broker import BrokerConfig as BrokerConfigType
from broker_core.config.store import StoreConfig as StoreConfigType
from broker_core.delivery.slow_consumers import SlowConsumers as SlowConsumersType
from broker_core.ha.role import Role as RoleType
from broker_core.message.subscription import SubscriptionData as SubscriptionDataType
from broker_core.message.subscription import SubscriptionGroupConfig as GroupConfigType
from broker_core.message.topic_config import TopicConfig as TopicConfigType
from broker_core.metadata.consumer_offsets import ConsumerOffsets as OffsetsType
from broker_core.remoting.dispatch import Dispatcher as DispatcherType
from broker_core.stats.counters import BrokerStats as StatsType
from broker_core.store.acknowledge import Acknowledgement as AcknowledgementType
from broker_core.store.consume_queue import ConsumeQueue as QueueType
from broker_core.store.index_service import IndexService as IndexType
from broker_core.store.mapped_file import MappedFile as MappedType
from broker_core.store.put_state import PutState as StateType
from broker_core.store.quarantine import Quarantine as QuarantineType
from broker_core.store.reads import MessageReader as ReaderType
from broker_core.store.visibility import Visibility as VisibilityType
from broker_core.trace.selection import EventSelection as EventSelectionType
from broker_core.trace.recorder import Recorder as RecorderType
from broker_core.trace.watch import Watch as WatchType

cdef extern from *:
    """
    #include <structmember.h>
    static Py_ssize_t offset_of_slot(PyObject *descriptor) {
        PyMemberDef *member;
        if (Py_TYPE(descriptor) != &PyMemberDescr_Type) return 0;
        member = ((PyMemberDescrObject *)descriptor)->d_member;
        return member->type == T_OBJECT_EX ? member->offset : 0;
    }
    """
    Py_ssize_t offset_of_slot(object descriptor)


cdef Py_ssize_t slot_of_class(kind, str name) except 0:
    cdef Py_ssize_t at = offset_of_slot(getattr(kind, name))
    if at <= 0:
        raise ImportError(f"{name} of {kind.__name__} is no slot")
    return at


cdef Py_ssize_t ACKNOWLEDGEMENT_WAITS = slot_of_class(AcknowledgementType, "waits")
cdef Py_ssize_t CONFIG_BROKER_PERMISSION = slot_of_class(BrokerConfigType, "broker_permission")
cdef Py_ssize_t CONFIG_FILTER_RETRY = slot_of_class(BrokerConfigType, "filter_support_retry")
cdef Py_ssize_t CONFIG_SLAVE_READ = slot_of_class(BrokerConfigType, "slave_read_enable")
cdef Py_ssize_t CONSUMERS_GROUPS = slot_of_class(ConsumersType, "groups")
cdef Py_ssize_t CONSUMERS_HEARTBEATS = slot_of_class(ConsumersType, "heartbeats")
cdef Py_ssize_t DATA_EXPRESSION_TYPE = slot_of_class(SubscriptionDataType, "expression_type")
cdef Py_ssize_t DATA_SUB_VERSION = slot_of_class(SubscriptionDataType, "sub_version")
cdef Py_ssize_t DISPATCHER_FIND = slot_of_class(DispatcherType, "find")
cdef Py_ssize_t GROUP_CONFIG_BROADCASTS = slot_of_class(
    GroupConfigType, "consume_broadcast_enable"
)
cdef Py_ssize_t GROUP_CONFIG_CONSUMES = slot_of_class(GroupConfigType, "consume_enable")
cdef Py_ssize_t GROUP_MEMBERS = slot_of_class(GroupType, "members")
cdef Py_ssize_t GROUP_MESSAGE_MODEL = slot_of_class(GroupType, "message_model")
cdef Py_ssize_t GROUP_SUBSCRIPTIONS = slot_of_class(GroupType, "subscriptions")
cdef Py_ssize_t INDEX_ROOM = slot_of_class(IndexType, "room")
cdef Py_ssize_t INDEX_WAITING = slot_of_class(IndexType, "waiting")
cdef Py_ssize_t MAPPED_BUFFER = slot_of_class(MappedType, "buffer")
cdef Py_ssize_t MAPPED_FROM = slot_of_class(MappedType, "file_from_offset")
cdef Py_ssize_t MAPPED_SIZE = slot_of_class(MappedType, "size")
cdef Py_ssize_t MEMBER_CLIENT_ID = slot_of_class(MemberType, "client_id")
cdef Py_ssize_t OFFSETS_IS_DIRTY = slot_of_class(OffsetsType, "is_dirty")
cdef Py_ssize_t OFFSETS_TABLE = slot_of_class(OffsetsType, "table")
cdef Py_ssize_t SELECTION_IS_ON = slot_of_class(EventSelectionType, "is_on")
cdef Py_ssize_t SELECTION_SENDS = slot_of_class(EventSelectionType, "sends")
cdef Py_ssize_t SELECTION_SAMPLE_CACHE = slot_of_class(EventSelectionType, "sample_cache")
cdef Py_ssize_t SELECTION_PULLS = slot_of_class(EventSelectionType, "pulls")
cdef Py_ssize_t QUARANTINE_RANGES = slot_of_class(QuarantineType, "ranges")
cdef Py_ssize_t QUEUE_BUFFER = slot_of_class(QueueType, "buffer")
cdef Py_ssize_t QUEUE_CODE_OF = slot_of_class(QueueType, "code_of")
cdef Py_ssize_t QUEUE_DIRTY = slot_of_class(QueueType, "dirty")
cdef Py_ssize_t QUEUE_KEY_SEED = slot_of_class(QueueType, "key_seed")
cdef Py_ssize_t QUEUE_LIMIT = slot_of_class(QueueType, "limit")
cdef Py_ssize_t QUEUE_MAX_OFFSET = slot_of_class(QueueType, "max_offset")
cdef Py_ssize_t QUEUE_MIN_OFFSET = slot_of_class(QueueType, "min_offset")
cdef Py_ssize_t QUEUE_NEXT_OFFSET = slot_of_class(QueueType, "next_offset")
cdef Py_ssize_t QUEUE_POSITION = slot_of_class(QueueType, "position")
cdef Py_ssize_t QUEUE_TOPIC_FIELD = slot_of_class(QueueType, "topic_field")
cdef Py_ssize_t QUEUE_WRITE = slot_of_class(QueueType, "write")
cdef Py_ssize_t READER_FOUND_TIMES = slot_of_class(ReaderType, "get_found_times")
cdef Py_ssize_t READER_FRESH_BYTES = slot_of_class(ReaderType, "fresh_bytes")
cdef Py_ssize_t READER_MEMORY_BYTES = slot_of_class(ReaderType, "memory_bytes")
cdef Py_ssize_t READER_MESSAGES = slot_of_class(ReaderType, "transferred_messages")
cdef Py_ssize_t READER_MISS_TIMES = slot_of_class(ReaderType, "get_miss_times")
cdef Py_ssize_t RECORDER_IS_ON = slot_of_class(RecorderType, "is_on")
cdef Py_ssize_t ROLE_IS_SLAVE = slot_of_class(RoleType, "is_slave")
cdef Py_ssize_t SLOW_CONSUMERS_IS_WATCHING = slot_of_class(SlowConsumersType, "is_watching")
cdef Py_ssize_t STATE_BUFFER = slot_of_class(StateType, "buffer")
cdef Py_ssize_t STATE_FROM = slot_of_class(StateType, "file_from_offset")
cdef Py_ssize_t STATE_IS_WRITABLE = slot_of_class(StateType, "is_writable")
cdef Py_ssize_t STATE_LIMIT = slot_of_class(StateType, "limit")
cdef Py_ssize_t STATE_POSITION = slot_of_class(StateType, "position")
cdef Py_ssize_t STATE_PUT_BYTES = slot_of_class(StateType, "put_bytes")
cdef Py_ssize_t STATE_PUT_TIMES = slot_of_class(StateType, "put_times")
cdef Py_ssize_t STATE_SLOW_AT = slot_of_class(StateType, "slow_at")
cdef Py_ssize_t STATE_STORE_TIMESTAMP = slot_of_class(StateType, "store_timestamp")
cdef Py_ssize_t STATS_GETS = slot_of_class(StatsType, "gets")
cdef Py_ssize_t STORE_CONFIG_BYTES = slot_of_class(
    StoreConfigType, "max_transfer_bytes_on_message_in_memory"
)
cdef Py_ssize_t STORE_CONFIG_COUNT = slot_of_class(
    StoreConfigType, "max_transfer_count_on_message_in_memory"
)
cdef Py_ssize_t STORE_CONFIG_MESSAGE = slot_of_class(StoreConfigType, "max_message_size")
cdef Py_ssize_t SUBSCRIPTION_DATA = slot_of_class(SubscriptionType, "data")
cdef Py_ssize_t SUBSCRIPTION_TAG_FILTER = slot_of_class(SubscriptionType, "tag_filter")
cdef Py_ssize_t TOPIC_CONFIG_PERM = slot_of_class(TopicConfigType, "perm")
cdef Py_ssize_t TOPIC_CONFIG_READ_QUEUES = slot_of_class(TopicConfigType, "read_queue_nums")
cdef Py_ssize_t VISIBILITY_READ_LIMIT = slot_of_class(VisibilityType, "read_limit")
cdef Py_ssize_t VISIBILITY_WAITS = slot_of_class(VisibilityType, "waits")
cdef Py_ssize_t WATCH_FRESH = slot_of_class(WatchType, "fresh")
cdef Py_ssize_t WATCH_IS_UP_TO_DATE = slot_of_class(WatchType, "is_up_to_date")


cdef inline object slot(object owner, Py_ssize_t at):
    """Return the object in a slot."""
    cdef PyObject* found = (<PyObject**>(<char*><PyObject*>owner + at))[0]
    if found == NULL:
        raise AttributeError(f"a {type(owner).__name__} is not whole")
    return <object>found


cdef inline int set_slot(object owner, Py_ssize_t at, object value) except -1:
    """Store an object in a slot."""
    cdef PyObject** place = <PyObject**>(<char*><PyObject*>owner + at)
    cdef PyObject* before = place[0]
    Py_INCREF(value)
    place[0] = <PyObject*>value
    Py_XDECREF(before)
    return 0


cdef extern from *:
    """
    #if PY_VERSION_HEX < 0x030C0000 && PyLong_SHIFT == 30
    #define IS_INT_KNOWN 1
    #else
    #define IS_INT_KNOWN 0
    #endif
    #define INT_KEPT_MAX 256 /* CPython caches small ints as single objects. */
    /* Whether an object is an int below 2^60; sets its value. */
    static inline int is_number(PyObject *object, int64_t *number) {
    #if IS_INT_KNOWN
        if (object != NULL && PyLong_CheckExact(object)) {
            const digit *digits = ((PyLongObject *)object)->ob_digit;
            if (Py_SIZE(object) == 1) { *number = digits[0]; return 1; }
            if (Py_SIZE(object) == 2) {
                *number = (int64_t)digits[1] << PyLong_SHIFT | digits[0];
                return 1;
            }
            if (Py_SIZE(object) == 0) { *number = 0; return 1; }
        }
    #endif
        return 0;
    }
    /* Overwrite an int in place if it has exactly `holders` references; return whether it did. */
    static inline int renumber(PyObject *object, int holders, int64_t number) {
    #if IS_INT_KNOWN
        if (object != NULL && Py_REFCNT(object) == holders && PyLong_CheckExact(object)
            && number > INT_KEPT_MAX) {
            digit *digits = ((PyLongObject *)object)->ob_digit;
            if (Py_SIZE(object) == 1 && number >> PyLong_SHIFT == 0) {
                digits[0] = (digit)number;
                return 1;
            }
            if (Py_SIZE(object) == 2 && number >> PyLong_SHIFT != 0
                && number >> 2 * PyLong_SHIFT == 0) {
                digits[0] = (digit)(number & PyLong_MASK);
                digits[1] = (digit)(number >> PyLong_SHIFT);
                return 1;
            }
        }
    #endif
        return 0;
    }
    static inline int is_real(PyObject *object, double *number) {
        if (object == NULL || !PyFloat_CheckExact(object)) return 0;
        *number = ((PyFloatObject *)object)->ob_fval;
        return 1;
    }
    static inline int renumber_real(PyObject *object, double number) {
        if (object == NULL || Py_REFCNT(object) != 1 || !PyFloat_CheckExact(object)) return 0;
        ((PyFloatObject *)object)->ob_fval = number;
        return 1;
    }
    """
    bint is_number(PyObject* found, int64_t* number)
    bint renumber(PyObject* found, int holders, int64_t number)
    bint is_real(PyObject* found, double* number)
    bint renumber_real(PyObject* found, double number)


cdef inline int64_t number_slot(object owner, Py_ssize_t at) except? -1:
    """Return the number in a slot."""
    cdef int64_t number
    if is_number((<PyObject**>(<char*><PyObject*>owner + at))[0], &number):
        return number
    return odd_number_slot(owner, at)


cdef int64_t odd_number_slot(object owner, Py_ssize_t at) except? -1:
    return <int64_t>slot(owner, at)


cdef inline int set_number(object owner, Py_ssize_t at, int64_t number) except -1:
    """Store a number in a slot, in place if the slot's object has no other owner.

    Creating an object takes about eighty instructions and touches different memory each time.
    """
    if renumber((<PyObject**>(<char*><PyObject*>owner + at))[0], 1, number):
        return 0
    return set_new_number(owner, at, number)


cdef inline int set_in_both(object owner, Py_ssize_t one, Py_ssize_t other,
                            int64_t number) except -1:
    """Store a number in two slots as one object."""
    cdef PyObject* found = (<PyObject**>(<char*><PyObject*>owner + one))[0]
    if found == (<PyObject**>(<char*><PyObject*>owner + other))[0] and renumber(found, 2, number):
        return 0
    return set_new_in_both(owner, one, other, number)


cdef int set_new_in_both(object owner, Py_ssize_t one, Py_ssize_t other,
                         int64_t number) except -1:
    cdef object new = number
    set_slot(owner, one, new)
    return set_slot(owner, other, new)


cdef int set_new_number(object owner, Py_ssize_t at, int64_t number) except -1:
    return set_slot(owner, at, number)


cdef inline double real_slot(object owner, Py_ssize_t at) except? -1.0:
    """Return the float in a slot."""
    cdef double number
    if is_real((<PyObject**>(<char*><PyObject*>owner + at))[0], &number):
        return number
    return <double>slot(owner, at)


cdef inline int set_real(object owner, Py_ssize_t at, double number) except -1:
    """Store a float in a slot, as `set_number` does."""
    if not renumber_real((<PyObject**>(<char*><PyObject*>owner + at))[0], number):
        set_slot(owner, at, number)
    return 0


cdef inline bint is_plain_queue(object queue) except -1:
    """Tell whether the turn writes a queue's units itself."""
    return type(queue) is QueueType and slot(queue, QUEUE_CODE_OF) is None


cdef inline object exactly(kind, owner):
    """Return an object whose slots will be used; raise if it is of another class."""
    if type(owner) is not kind:
        raise TypeError(f"a {type(owner).__name__} is no {kind.__name__}")
    return owner


cdef inline object finder_of(dispatcher):
    """Return the handler lookup of a dispatcher, which is replaced when any handler changes."""
    return slot(exactly(DispatcherType, dispatcher), DISPATCHER_FIND)


cdef extern from *:
    """
    static inline int is_same(PyObject *one, PyObject *other) {
        const PyASCIIObject *first = (PyASCIIObject *)one, *second = (PyASCIIObject *)other;
        if (one == other) return 1;
        if (one == Py_None || other == Py_None) return 0;
        if (first->state.ascii && first->state.compact && second->state.ascii
            && second->state.compact)
            return first->length == second->length
                && memcmp(first + 1, second + 1, first->length) == 0;
        return PyUnicode_Compare(one, other) == 0;
    }
    """
    # Whether two strings, or None, are equal.
    bint is_same(str one, str other)
