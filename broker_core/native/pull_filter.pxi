"""Find the filter of a pull and choose units with it."""

cdef class PullFilters(PullState):
    """Finds the filter of a pull and applies it to the tags codes of units."""

    @cython.final
    cdef bint _find_filter(self, Pull* pull, group, topic, connection) except -1:
        """Find the reader's filter if it may read the queue. Python twin: SubscriptionCheck.

        Returns whether every check passed; Python reports the failure otherwise.
        """
        check = self._check
        config = self._config
        group_config = self._groups.get(group)
        if group_config is None:
            group_config = check.groups.find_or_create(group)
        topic_config = self._topics.get(topic)
        if (
            type(group_config) is not GroupConfigType
            or type(topic_config) is not TopicConfigType
            or not number_slot(config, CONFIG_BROKER_PERMISSION) & READABLE
            or not slot(group_config, GROUP_CONFIG_CONSUMES)
            or not number_slot(topic_config, TOPIC_CONFIG_PERM) & READABLE
            or topic in HIDDEN_TOPICS
            or not 0 <= pull.queue_id < number_slot(topic_config, TOPIC_CONFIG_READ_QUEUES)
            or slot(config, CONFIG_FILTER_RETRY)
        ):
            return False
        if pull.sys_flag & FLAG_SUBSCRIPTION:
            return self._find_own_filter(pull, topic)
        readers = self._readers.get(group)
        if type(readers) is not GroupType or (
            not slot(group_config, GROUP_CONFIG_BROADCASTS)
            and slot(readers, GROUP_MESSAGE_MODEL) == "BROADCASTING"
        ):
            return False
        subscription = (<dict>slot(readers, GROUP_SUBSCRIPTIONS)).get(topic)
        if type(subscription) is not SubscriptionType:
            return False
        data = slot(subscription, SUBSCRIPTION_DATA)
        if type(data) is not SubscriptionDataType:
            return False
        if number_slot(data, DATA_SUB_VERSION) < pull.sub_version:
            return False
        if not (
            is_same(<str>slot(data, DATA_EXPRESSION_TYPE), EXPRESSION_TYPE_TAG)
            or data.is_tag_expression
        ):
            return False
        self._wanted = slot(subscription, SUBSCRIPTION_TAG_FILTER)
        return True

    @cython.final
    cdef bint _find_own_filter(self, Pull* pull, topic) except -1:
        expression = self._text(pull.subscription)
        expression_type = self._text(pull.expression_type)
        if expression is None or expression_type is None:
            return False
        most = min(self._kept_chars_max, <int64_t>self._check.limits.client_expression_chars_max)
        if len(expression) > most:
            return False
        wanted = self._kept_filter(topic, expression, expression_type or None)
        if wanted is not None and type(wanted) is not self._filter_type:
            return False
        self._wanted = wanted
        return True

    @cython.final
    cdef bint _take_codes(self, codes) except -1:
        if len(codes) > CODES_MAX:
            return False
        self._code_count = 0
        for code in codes:
            self._codes[self._code_count] = code
            self._code_count += 1
        return True

    @cython.final
    cdef bint _is_wanted(self, int64_t code) noexcept:
        cdef int i
        for i in range(self._code_count):
            if self._codes[i] == code:
                return True
        return code <= ADDRESS_MAX
