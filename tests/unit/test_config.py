from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker_core import config
from broker_core.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def build(**table: str) -> config.Configuration:
    configuration, errors = config.build(table)
    assert not errors, [str(error) for error in errors]
    return configuration


def one_error(**table: str) -> ConfigError:
    _, errors = config.build(table)
    assert len(errors) == 1
    return errors[0]


def test_without_a_file_everything_is_rocketmqs_default() -> None:
    configuration = build()

    assert configuration.server.listen_port == 10911
    assert configuration.store.mapped_file_size_commit_log == 1 << 30
    assert configuration.store.flush_disk_type == "ASYNC_FLUSH"
    assert configuration.store.file_reserved_time == 72
    assert configuration.broker.default_topic_queue_nums == 8
    assert configuration.broker.broker_cluster_name == "DefaultCluster"


def test_listeners_are_on_loopback_by_default() -> None:
    broker = build().broker

    assert broker.bind_address == "127.0.0.1"
    assert broker.broker_ip1 == "127.0.0.1"


def test_the_name_server_is_embedded_unless_another_is_named() -> None:
    assert build().broker.embedded_namesrv
    assert not build(namesrvAddr="127.0.0.1:9876").broker.embedded_namesrv
    assert build(namesrvAddr="127.0.0.1:9876", embeddedNamesrv="true").broker.embedded_namesrv


def test_a_broker_without_any_name_server_is_refused() -> None:
    assert one_error(embeddedNamesrv="false").key == "embeddedNamesrv"


def test_an_older_spelling_of_a_key_is_understood() -> None:
    assert build(mapedFileSizeCommitLog="131072").store.mapped_file_size_commit_log == 131_072


def test_a_consume_queue_file_holds_whole_units() -> None:
    assert build(mappedFileSizeConsumeQueue="6001").store.mapped_file_size_consume_queue == 6020


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("listenPort", "70000"),
        ("listenPort", "ten"),
        ("listenPort", "1_0"),
        ("flushDiskType", "SOMETIMES"),
        ("autoCreateTopicEnable", "yes"),
        ("namesrvAddr", "127.0.0.1"),
        ("namesrvAddr", "127.0.0.1:99999"),
        ("brokerName", "with blank"),
        ("brokerIP1", "not an address"),
        ("deleteWhen", "25"),
        ("messageDelayLevel", "soon"),
        ("brokerRole", "SLAVE"),
        ("mappedFileSizeConsumeQueueExt", "1"),
        ("mappedFileSizeCommitLog", "1"),
        ("mappedFileSizeCommitLog", "9" * 30),
    ],
)
def test_a_bad_value_is_named_with_what_would_be_right(key: str, value: str) -> None:
    error = one_error(**{key: value})

    assert error.key == key
    assert error.expected
    assert "\n" not in str(error)


def test_all_bad_values_are_reported_at_once() -> None:
    _, errors = config.build({"listenPort": "x", "flushDiskType": "y"})

    assert {error.key for error in errors} == {"listenPort", "flushDiskType"}


def test_an_unknown_key_is_one_warning_with_the_nearest_known_key() -> None:
    configuration = build(listenProt="1")

    (warning,) = configuration.warnings
    assert "listenProt" in warning
    assert "listenPort" in warning


def test_a_key_that_means_nothing_here_is_accepted_and_marked() -> None:
    configuration = build(sendMessageThreadPoolNums="16")

    assert configuration.warnings == ()
    assert configuration.inert == (("sendMessageThreadPoolNums", "16"),)


def test_buffers_have_no_effect_with_synchronous_flush_and_that_is_said() -> None:
    keys = {"transientStorePoolEnable": "true", "transientStorePoolSize": "3"}
    asynchronous = build(**keys)
    synchronous = build(**keys, flushDiskType="SYNC_FLUSH")

    assert asynchronous.store.is_transient_store_pool_enabled
    assert asynchronous.store.transient_store_pool_size == 3
    assert asynchronous.warnings == ()
    assert not synchronous.store.is_transient_store_pool_enabled
    (warning,) = synchronous.warnings
    assert "no effect" in warning


@pytest.mark.parametrize(
    ("key", "default"),
    [
        ("commitIntervalCommitLog", "200"),
        ("commitCommitLogLeastPages", "4"),
        ("commitCommitLogThoroughInterval", "200"),
        ("fastFailIfNoBufferInStorePool", "false"),
        ("flushCommitLogTimed", "true"),
        ("flushLeastPagesWhenWarmMapedFile", "4096"),
        ("transientStorePoolEnable", "false"),
        ("transientStorePoolSize", "5"),
        ("warmMapedFileEnable", "false"),
        ("enabledAppendPropCRC", "false"),
    ],
)
def test_keys_of_memory_and_flush_have_rocketmqs_defaults(key: str, default: str) -> None:
    assert dict(build().items())[key] == default


@pytest.mark.parametrize(
    ("key", "default"),
    [
        ("enableConsumeQueueExt", "false"),
        ("mappedFileSizeConsumeQueueExt", "50331648"),
        ("bitMapLengthConsumeQueueExt", "64"),
        ("enableCalcFilterBitMap", "false"),
        ("expectConsumerNumUseFilter", "32"),
        ("maxErrorRateOfBloomFilter", "20"),
        ("filterDataCleanTimeSpan", "86400000"),
        ("filterSupportRetry", "false"),
        ("enablePropertyFilter", "false"),
    ],
)
def test_keys_of_filters_have_rocketmqs_defaults(key: str, default: str) -> None:
    assert dict(build().items())[key] == default
    assert key in config.KNOWN


def test_no_key_stands_in_two_tables() -> None:
    tables = [
        set(config.KNOWN),
        set(config.INERT),
        set(config.ONLY),
        set(config.JAVA_CLASSES),
        set(config.ALIASES),
    ]

    assert sum(map(len, tables)) == len(set().union(*tables))
    assert set(config.EXTENSION_KEYS) <= set(config.KNOWN)
    assert set(config.RANGES) <= set(config.KNOWN)
    assert set(config.IMPORTANT) <= set(config.KNOWN)


def test_what_is_printed_reads_back_the_same() -> None:
    printed = dict(build(brokerName="b", listenPort="1234").items())

    again, errors = config.build(printed)

    assert not errors
    assert dict(again.items()) == printed


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("a=1\nb = 2", {"a": "1", "b": "2"}),
        ("# note\n! note\n\n a:1", {"a": "1"}),
        ("a=1\\\n  2", {"a": "12"}),
        ("a=b=c", {"a": "b=c"}),
        (r"a=C\:\\x", {"a": r"C:\x"}),
        (r"a=\u0041\t.", {"a": "A\t."}),
        ("a", {"a": ""}),
        ("a=1\r\nb=2\r\n", {"a": "1", "b": "2"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, table: dict[str, str]) -> None:
    assert config.parse_properties(text) == table


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        config.load(str(tmp_path / "none.conf"))


def test_an_override_wins_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("namesrvAddr=127.0.0.1:1\nbrokerName=b\n")

    configuration, errors = config.load(str(path), {"namesrvAddr": "127.0.0.1:2"})

    assert not errors
    assert configuration.broker.namesrv_addr == "127.0.0.1:2"
    assert configuration.broker.broker_name == "b"


def test_what_may_change_changes_at_once_and_all_or_nothing() -> None:
    configuration = build()

    assert config.update(configuration, {"fileReservedTime": "24", "traceOn": "true"}) == [
        "fileReservedTime"
    ]
    with pytest.raises(ConfigError) as bad:
        config.update(configuration, {"fileReservedTime": "1", "maxMessageSize": "0"})
    with pytest.raises(ConfigError) as forbidden:
        config.update(configuration, {"storePathRootDir": "/tmp/x"})

    assert configuration.store.file_reserved_time == 24
    assert bad.value.expected
    assert not forbidden.value.expected


def test_each_key_that_may_change_has_an_effect_and_is_no_path() -> None:
    assert config.KNOWN.keys() >= config.UPDATABLE
    assert not any("path" in key.lower() or "dir" in key.lower() for key in config.UPDATABLE)


def test_a_changed_key_is_changed_in_the_files_text_and_nothing_else_is() -> None:
    text = "# mine\nlistenPort = 1\n\n! note\ntraceOn=true\ntraceOn: true\n"

    edited = config.edited(text, {"traceOn": "false", "deleteWhen": "05"})

    assert edited == "# mine\nlistenPort = 1\n\n! note\ntraceOn=false\ndeleteWhen=05\n"


def test_tls_properties_are_read_below_the_brokers_own(tmp_path: Path) -> None:
    tls = tmp_path / "tls.properties"
    tls.write_text("tls.server.mode=enforcing\ntls.client.keyPath=x\ntls.server.keyPassword=s\n")
    file = tmp_path / "broker.conf"
    file.write_text(f"tls.config.file={tls}\ntls.test.mode.enable=false\n")

    configuration, errors = config.load(str(file))

    assert not errors
    assert not configuration.warnings
    assert configuration.tls.mode == "enforcing"
    assert configuration.tls.test_mode_enable is False
    assert configuration.path == str(file)
    # A password is never shown, neither by -p nor to who asks over the wire.
    assert dict(configuration.items())["tls.server.keyPassword"] == config.HIDDEN


def test_a_certificate_without_its_key_is_refused() -> None:
    assert one_error(**{"tls.server.certPath": "/c.pem"}).key == "tls.server.certPath"


def test_an_address_server_is_asked_instead_of_a_name_server_of_our_own() -> None:
    assert not build(fetchNamesrvAddrByAddressServer="true").broker.embedded_namesrv
    assert one_error(namesrvAddressServer="https://x/").key == "namesrvAddressServer"


@pytest.mark.parametrize(
    ("key", "ours"),
    [
        ("messageStorePlugIn", "messageStorePlugIn"),
        ("rpcHooks", "rpcHooks"),
        ("authenticationProvider", "accessValidators"),
        ("authorizationStrategy", "accessValidators"),
    ],
)
def test_a_java_class_is_refused_with_what_to_do_instead(key: str, ours: str) -> None:
    sentence = str(one_error(**{key: "org.apache.rocketmq.Some"}))

    assert "Java classes cannot be loaded: write a Python package with an entry point" in sentence
    assert f"name that in {ours} (docs/extensions.md)" in sentence
    assert "\n" not in sentence


def test_without_names_there_are_no_extensions() -> None:
    broker = build(messageStorePlugIn="", authenticationProvider="").broker

    assert not broker.message_store_plug_in
    assert not broker.send_message_hooks
    assert broker.access_validators == "plain_acl"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("sendMessageHooks", "two words"),
        ("sendMessageHooks", "a,a"),
        ("sendMessageHooks", ",".join(f"h{number}" for number in range(33))),
        ("transactionListener", "a,b"),
        ("accessValidators", ""),
        ("accessValidators", "mine"),
    ],
)
def test_names_of_extensions_are_checked(key: str, value: str) -> None:
    assert one_error(**{key: value}).key == key


def test_other_validators_need_access_control_to_be_on() -> None:
    broker = build(aclEnable="true", accessValidators="plain_acl,mine").broker

    assert config.names_of(broker.access_validators) == ["plain_acl", "mine"]


def test_an_extensions_own_keys_are_kept_for_it_and_shown_to_nobody() -> None:
    configuration = build(rpcHooks="a", **{"extension.a.secret.key": "s", "extension.a.x": "1"})

    assert configuration.extension_options == {"a": {"secret.key": "s", "x": "1"}}
    assert configuration.warnings == ()
    assert dict(configuration.items())["extension.a.secret.key"] == config.HIDDEN
    assert "'s'" not in repr(configuration)


def test_keys_of_an_extension_that_is_not_named_are_warned_of() -> None:
    (warning,) = build(rpcHooks="a", **{"extension.b.x": "1"}).warnings

    assert "no extension 'b' is named" in warning


def test_who_takes_only_tls_speaks_it_to_name_servers_too() -> None:
    assert not build().tls.use_tls
    assert build(**{"tls.server.mode": "enforcing"}).tls.use_tls
    assert not build(**{"tls.server.mode": "enforcing", "useTLS": "false"}).tls.use_tls
    assert build(**{"tls.enable": "true"}).tls.use_tls


def test_a_filter_server_is_accepted_without_effect() -> None:
    configuration = build(filterServerNums="2")

    assert configuration.inert == (("filterServerNums", "2"),)
    assert config.fixed_items()["filterServerNums"] == "0"
