"""Read the JSON or binary header and the properties of a send or pull without Python objects.

Only input written the way the Java, Go and Trebuchet clients write it is accepted; the caller
leaves the rest to the Python twin. So everything here is stricter than the twin's decoders and
agrees with them on accepted input. Lengths come from the wire: every function is given the end and
reads no byte past it.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy

ctypedef const uint8_t* Bytes

from broker_core.native.constants cimport (
    BATCH_BODY_SIZE_POSITION,
    BATCH_FLAG_POSITION,
    BATCH_HEAD_SIZE,
    BATCH_LETTER,
    BATCH_MESSAGE_BYTES_MIN,
    BORN_TIMESTAMP_LETTER,
    BROKER_NAME_LETTER,
    DEFAULT_TOPIC_LETTER,
    DEFAULT_TOPIC_QUEUE_NUMS_LETTER,
    END_TRANSACTION,
    FIELD_BATCH,
    FIELD_BORN_TIMESTAMP,
    FIELD_BROKER_NAME,
    FIELD_DEFAULT_TOPIC,
    FIELD_DEFAULT_TOPIC_QUEUE_NUMS,
    FIELD_FLAG,
    FIELD_MAX_RECONSUME_TIMES,
    FIELD_PRODUCER_GROUP,
    FIELD_PROPERTIES,
    FIELD_QUEUE_ID,
    FIELD_RECONSUME_TIMES,
    FIELD_SYS_FLAG,
    FIELD_TOPIC,
    FIELD_UNIT_MODE,
    FLAG_LETTER,
    HEADER_CODE,
    HEADER_EXT_FIELDS,
    HEADER_FLAG,
    HEADER_FLAG_POSITION,
    HEADER_KEY_BYTES_MAX,
    HEADER_LANGUAGE,
    HEADER_OPAQUE,
    HEADER_OPAQUE_POSITION,
    HEADER_REMARK,
    HEADER_REMARK_POSITION,
    HEADER_VERSION,
    INT32_MAX,
    LITE_PULL_MESSAGE,
    MAX_RECONSUME_TIMES_LETTER,
    NAME_VALUE_SEPARATOR,
    ONEWAY_FLAG,
    PRODUCER_GROUP_LETTER,
    PROPERTIES_BYTES_MAX,
    PROPERTIES_LETTER,
    PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS,
    PROPERTY_KEYS,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_SEPARATOR,
    PROPERTY_TAGS,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_UNIQ_KEY,
    PROPERTY_WAIT_STORE_MSG_OK,
    PULL_MESSAGE,
    QUEUE_ID_LETTER,
    RECONSUME_TIMES_LETTER,
    SEND_BATCH_MESSAGE,
    SEND_LETTER_MAX,
    SEND_LETTER_MIN,
    SEND_MESSAGE,
    SEND_MESSAGE_V2,
    SYS_FLAG_LETTER,
    TOPIC_LETTER,
    UNIT_MODE_LETTER,
    is_word,
)

cdef extern from "texts.h" nogil:
    Bytes past_plain(Bytes at, Bytes end)
    size_t copy_to_slash(uint8_t* to, Bytes at, Bytes end)
    Bytes next_separator(Bytes begin, Bytes at, Bytes end)
    int hex_code(Bytes at)

cdef enum:
    SPECIAL_MAX = 16
    COMMON_MAX = 32
    WAIT_MAX = 8
    FIELDS_MAX = 100
    # The minimum sizes of a binary header and of an entry in it.
    BINARY_MIN = HEADER_REMARK_POSITION + 8
    ENTRY_MIN = 6
    SIZE_OF_SIZE = 4

# Fields of a pull, one bit each.
cdef enum:
    GROUP_FIELD = 1
    TOPIC_FIELD = 2
    QUEUE_ID_FIELD = 4
    QUEUE_OFFSET_FIELD = 8
    MAX_MSG_NUMS_FIELD = 16
    SYS_FLAG_FIELD = 32
    COMMIT_OFFSET_FIELD = 64
    SUSPEND_FIELD = 128
    SUBSCRIPTION_FIELD = 256
    SUB_VERSION_FIELD = 512
    EXPRESSION_TYPE_FIELD = 1024
    # The required fields, the 32-bit fields and all numeric fields.
    NEEDED_FIELDS = 63
    SHORT_FIELDS = 52
    NUMBER_FIELDS = 764


cdef struct Text:
    Bytes at
    Py_ssize_t size
    # Contains backslash escapes; surrogates only in pairs.
    bint is_escaped


cdef struct Head:
    int32_t code
    int32_t opaque
    int32_t flag
    # Where it is in a JSON header, NULL if absent; the same for those below.
    Bytes opaque_at


cdef struct Pull:
    int32_t code
    int32_t opaque
    bint is_binary
    Text group
    Text topic
    Text subscription
    Text expression_type
    int32_t queue_id
    int32_t max_msg_nums
    int32_t sys_flag
    int64_t queue_offset
    int64_t commit_offset
    int64_t suspend_timeout_ms
    int64_t sub_version
    Bytes opaque_at
    Bytes queue_id_at
    Bytes queue_offset_at
    Bytes commit_offset_at


cdef struct Send:
    int32_t opaque
    Text topic
    Text producer_group
    Text properties
    int32_t queue_id
    int32_t sys_flag
    int32_t flag
    int32_t reconsume_times
    int64_t born_timestamp
    int32_t code
    bint is_batch
    bint is_oneway
    bint is_binary
    Bytes opaque_at
    Bytes queue_id_at
    Bytes born_at
    # Whether the properties field is present, even if empty.
    bint properties_differ


cdef struct End:
    # Ends a transaction.
    Text group
    int64_t queue_offset
    int64_t commit_log_offset
    int32_t outcome


# Fields of an end, one bit each.
cdef enum:
    END_GROUP_FIELD = 1
    END_QUEUE_OFFSET_FIELD = 2
    END_OFFSET_FIELD = 4
    END_OUTCOME_FIELD = 8
    END_FIELDS = 15


cdef struct Half:
    # From a half message's properties, which are all complete and have no duplicates.
    Text tags
    Text keys
    Text uniq_key
    Text group
    Text real_topic
    Text real_queue_id


cdef struct Special:
    Bytes at[SPECIAL_MAX]
    Py_ssize_t size[SPECIAL_MAX]
    int count


cdef struct Properties:
    # In the scratch buffer: the stored properties without the cluster pair.
    Py_ssize_t size
    Text tags
    Text keys
    Text uniq_key
    # Whether WAIT is present, and whether its value is "false".
    bint has_wait
    bint is_unawaited


cdef struct Prepared:
    # The stored properties of an incoming half message, without its real topic and queue.
    Properties properties
    Text group
    Text immunity
    Bytes wait_at
    Bytes wait_end
    bint is_prepared
    uint8_t wait[WAIT_MAX]
    Py_ssize_t wait_size


cdef struct Item:
    # A message of a batch.
    int32_t flag
    Text body
    Text properties
    Text tags
    Text keys
    Text uniq_key


include "scan_texts.pxi"
include "scan_fields.pxi"
include "scan_headers.pxi"
include "scan_properties.pxi"
