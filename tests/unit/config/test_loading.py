from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker_core.config import loading
from broker_core.config.exposure import exposure
from broker_core.config.lists import names_of
from broker_core.config.loading import load
from broker_core.config.values import HIDDEN
from broker_core.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from broker_core.config.configuration import Configuration


def build(**table: str) -> Configuration:
    configuration, errors = loading.build(table)
    assert not errors, [str(error) for error in errors]
    return configuration


def one_error(**table: str) -> ConfigError:
    _, errors = loading.build(table)
    assert len(errors) == 1
    return errors[0]


def test_without_a_file_everything_is_rocketmqs_default() -> None:
    configuration = build()

    assert configuration.server.listen_port == 10911
    assert configuration.store.mapped_file_size_commit_log == 1 << 30
    assert configuration.store.flush_disk_type == "ASYNC_FLUSH"
    assert configuration.store.file_reserved_time == 72
    assert not configuration.store.enabled_append_prop_crc
    assert configuration.broker.default_topic_queue_nums == 8
    assert configuration.broker.broker_cluster_name == "DefaultCluster"


def test_listeners_are_on_loopback_by_default() -> None:
    broker = build().broker

    assert broker.bind_address == "127.0.0.1"
    assert broker.broker_ip1 == "127.0.0.1"


def test_the_name_server_is_embedded_unless_another_is_configured() -> None:
    assert build().broker.embedded_namesrv
    assert not build(namesrvAddr="127.0.0.1:9876").broker.embedded_namesrv
    assert build(namesrvAddr="127.0.0.1:9876", embeddedNamesrv="true").broker.embedded_namesrv


def test_a_broker_without_any_name_server_is_rejected() -> None:
    assert one_error(embeddedNamesrv="false").key == "embeddedNamesrv"


def test_an_older_spelling_of_a_key_is_accepted() -> None:
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
        ("brokerRole", "MASTER"),
        ("haMasterAddress", "127.0.0.1"),
        ("haMasterAddress", "127.0.0.1:1;127.0.0.1:2"),
        ("haAllowedAddresses", "slave.example"),
        ("minInSyncReplicas", "3"),
        ("mappedFileSizeConsumeQueueExt", "1"),
        ("mappedFileSizeCommitLog", "1"),
        ("mappedFileSizeCommitLog", "9" * 30),
    ],
)
def test_an_error_names_the_invalid_value_and_the_valid_ones(key: str, value: str) -> None:
    error = one_error(**{key: value})

    assert error.key == key
    assert error.expected
    assert "\n" not in str(error)


def test_all_invalid_values_are_reported_at_once() -> None:
    _, errors = loading.build({"listenPort": "x", "flushDiskType": "y"})

    assert {error.key for error in errors} == {"listenPort", "flushDiskType"}


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("listenProt", "listenPort"),
        ("BROKERNAME", "brokerName"),
        ("tls.server.certpaht", "tls.server.certPath"),
        ("timerWheelEnabled", "timerWheelEnable"),
        ("wheelTimer", None),
        ("x", None),
    ],
)
def test_an_unknown_key_is_one_warning_with_the_key_that_is_a_typo_away(
    key: str, meant: str | None
) -> None:
    hint = f"; did you mean {meant!r}?" if meant else ""

    assert build(**{key: "1"}).warnings == (f"unknown configuration key {key!r} is ignored{hint}",)


@pytest.mark.parametrize("key", ["timerStopEnqueue", "metricsExporterType", "supportActingMaster"])
def test_a_guessable_key_is_recognized(key: str) -> None:
    warning = f"{key!r} is a key of RocketMQ 5.x that has no effect here"

    assert build(**{key: "1"}).warnings == (warning,)


@pytest.mark.parametrize("key", ["authenticationEnabled", "authorizationEnabled"])
def test_a_broker_never_runs_without_the_access_control_that_a_key_of_5_promises(key: str) -> None:
    assert build(**{key: "false"}).warnings == ()
    assert "aclEnable=true" in one_error(**{key: "true"}).expected


def test_a_key_that_means_nothing_here_is_accepted_and_marked() -> None:
    configuration = build(sendMessageThreadPoolNums="16")

    assert configuration.warnings == ()
    assert configuration.without_effect == (("sendMessageThreadPoolNums", "16"),)


def test_trusted_proxies_are_named() -> None:
    named = build(haProxyProtocolEnable="true", proxyProtocolTrusted="10.0.0.5, fd00::/8")
    (unnamed,) = build(haProxyProtocolEnable="true", proxyProtocolTrusted=" ,").warnings
    (idle,) = build(proxyProtocolTrusted="10.0.0.5").warnings

    assert named.warnings == ()
    assert "every connection is refused" in unnamed
    assert "has no effect" in idle


@pytest.mark.parametrize("text", ["10.0.0.5/8", "proxy.example", "10.0.0.0/33", "*"])
def test_a_trusted_proxy_is_an_address_or_a_network(text: str) -> None:
    assert one_error(proxyProtocolTrusted=text).key == "proxyProtocolTrusted"


@pytest.mark.parametrize(
    "text", ["", "127.0.0.1:10921", "[::1]:10921", "127.9.9.9:1", "/run/trebuchet/admin.sock"]
)
def test_administration_is_served_only_on_this_machine(text: str) -> None:
    assert build(adminListenAddress=text).broker.admin_listen_address == text


@pytest.mark.parametrize(
    "text",
    ["0.0.0.0:1", "10.0.0.5:1", "localhost:1", "127.0.0.1", "127.0.0.1:0", "x", "/" + "x" * 107],
)
def test_an_admin_listener_on_another_machine_is_rejected(text: str) -> None:
    assert one_error(adminListenAddress=text).key == "adminListenAddress"


def test_buffers_have_no_effect_with_synchronous_flush_which_is_reported() -> None:
    keys = {"transientStorePoolEnable": "true", "transientStorePoolSize": "3"}
    asynchronous = build(**keys)
    synchronous = build(**keys, flushDiskType="SYNC_FLUSH")

    assert asynchronous.store.is_transient_store_pool_enabled
    assert asynchronous.store.transient_store_pool_size == 3
    assert asynchronous.warnings == ()
    assert not synchronous.store.is_transient_store_pool_enabled
    (warning,) = synchronous.warnings
    assert "no effect" in warning


def test_printed_output_reads_back_the_same() -> None:
    printed = dict(build(brokerName="b", listenPort="1234").items())

    again, errors = loading.build(printed)

    assert not errors
    assert dict(again.items()) == printed


def test_a_missing_file_is_reported_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load(str(tmp_path / "none.conf"))


def test_an_override_takes_precedence_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("namesrvAddr=127.0.0.1:1\nbrokerName=b\n")

    configuration, errors = load(str(path), {"namesrvAddr": "127.0.0.1:2"})

    assert not errors
    assert configuration.broker.namesrv_addr == "127.0.0.1:2"
    assert configuration.broker.broker_name == "b"


def test_tls_properties_are_read_below_the_brokers_own(tmp_path: Path) -> None:
    tls = tmp_path / "tls.properties"
    tls.write_text("tls.server.mode=enforcing\ntls.client.keyPath=x\ntls.server.keyPassword=s\n")
    tls.chmod(0o600)
    file = tmp_path / "broker.conf"
    file.write_text(f"tls.config.file={tls}\ntls.test.mode.enable=false\n")

    configuration, errors = load(str(file))

    assert not errors
    assert not configuration.warnings
    assert configuration.tls.mode == "enforcing"
    assert configuration.tls.test_mode_enable is False
    assert configuration.path == str(file)
    # A password is never shown, neither by -p nor over the wire.
    assert dict(configuration.items())["tls.server.keyPassword"] == HIDDEN


def test_a_certificate_without_its_key_is_rejected() -> None:
    assert one_error(**{"tls.server.certPath": "/c.pem"}).key == "tls.server.certPath"


def test_an_address_server_is_queried_instead_of_our_own_name_server() -> None:
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
def test_a_java_class_is_rejected_with_the_alternative(key: str, ours: str) -> None:
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

    assert names_of(broker.access_validators) == ["plain_acl", "mine"]


def test_the_account_for_name_servers_has_two_keys_and_one_is_hidden() -> None:
    configuration = build(namesrvAccessKey="broker-b", namesrvSecretKey="12345678")

    assert dict(configuration.items())["namesrvSecretKey"] == HIDDEN
    assert "12345678" not in repr(configuration)
    for key in ("namesrvAccessKey", "namesrvSecretKey"):
        assert one_error(**{key: "12345678"}).key == "namesrvAccessKey"


def test_an_extensions_own_keys_are_kept_for_it_and_hidden() -> None:
    configuration = build(rpcHooks="a", **{"extension.a.secret.key": "s", "extension.a.x": "1"})

    assert configuration.extension_options == {"a": {"secret.key": "s", "x": "1"}}
    assert configuration.warnings == ()
    assert dict(configuration.items())["extension.a.secret.key"] == HIDDEN
    assert "'s'" not in repr(configuration)


def test_keys_of_an_unnamed_extension_cause_a_warning() -> None:
    (warning,) = build(rpcHooks="a", **{"extension.b.x": "1"}).warnings

    assert "extension 'b' isn't listed" in warning


def test_a_tls_only_broker_also_uses_tls_to_name_servers() -> None:
    assert not build().tls.use_tls
    assert build(**{"tls.server.mode": "enforcing"}).tls.use_tls
    assert not build(**{"tls.server.mode": "enforcing", "useTLS": "false"}).tls.use_tls
    assert build(**{"tls.enable": "true"}).tls.use_tls


@pytest.mark.parametrize("value", ["1", "-1", "none"])
def test_a_filter_server_is_rejected(value: str) -> None:
    assert build(filterServerNums="0").without_effect == ()
    assert "filter servers aren't supported" in str(one_error(filterServerNums=value))


@pytest.mark.parametrize(
    ("keys", "url"),
    [
        ({}, "http://jmenv.tbsite.net:8080/rocketmq/nsaddr"),
        ({"rmqAddressServerDomain": "a.example"}, "http://a.example:8080/rocketmq/nsaddr"),
        (
            {"rmqAddressServerDomain": "a.example:81", "rmqAddressServerSubGroup": "mine"},
            "http://a.example:81/rocketmq/mine",
        ),
        ({"namesrvAddressServer": "http://b.example/x"}, "http://b.example/x"),
    ],
)
def test_the_address_server_consists_of_domain_and_sub_group(
    keys: dict[str, str], url: str
) -> None:
    assert build(**keys).broker.namesrv_address_server == url


def test_an_invalid_number_is_rejected_with_its_unit_and_range() -> None:
    sentence = str(one_error(flushIntervalCommitLog="0"))

    assert "a whole number of milliseconds from 1 to 60000" in sentence


def test_log_levels_are_read_and_shown() -> None:
    keys = {"logLevel": "WARNING", "logLevel.broker_core.store": "DEBUG"}

    configuration = build(**keys)

    assert configuration.broker.log_level == "WARNING"
    assert configuration.log_levels == {"broker_core.store": "DEBUG"}
    assert keys.items() <= dict(configuration.items()).items()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("logLevel", "WARN"),
        ("logLevel.broker_core", "loud"),
        ("logLevel.broker_core.nothing", "INFO"),
        ("logLevel.two words", "INFO"),
    ],
)
def test_an_invalid_log_level_is_rejected(key: str, value: str) -> None:
    assert one_error(**{key: value}).key == key


SECRETS = {"namesrvAccessKey": "broker-b", "namesrvSecretKey": "s3cret-key"}


@pytest.mark.parametrize(
    "table", [SECRETS, {"extension.audit.token": "s3cret-key"}], ids=["key", "extension"]
)
def test_secrets_in_a_file_readable_by_others_are_a_warning(
    tmp_path: Path, table: dict[str, str]
) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("".join(f"{key}={value}\n" for key, value in table.items()))
    for mode, is_warned_of in ((0o640, True), (0o604, True), (0o600, False)):
        file.chmod(mode)

        configuration, errors = load(str(file))

        found = [text for text in configuration.warnings if "contains secrets" in text]
        assert not errors
        assert len(found) == is_warned_of
        for text in found:
            assert f"{mode:04o}" in text
            assert f"chmod 600 {file}" in text
            assert "s3cret-key" not in text


def test_a_file_without_secrets_may_be_read_by_others(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("listenPort=10911\nnamesrvSecretKey=\n")
    file.chmod(0o644)

    assert load(str(file))[0].warnings == ()


def test_a_tls_file_with_a_password_readable_by_others_is_a_warning(tmp_path: Path) -> None:
    tls = tmp_path / "tls.properties"
    tls.write_text("tls.server.keyPassword=s3cret-key\n")
    tls.chmod(0o644)
    file = tmp_path / "broker.conf"
    file.write_text(f"tls.config.file={tls}\n")

    warnings = load(str(file))[0].warnings

    assert [f"chmod 600 {tls}" in text for text in warnings] == [True]


def test_another_users_file_must_become_ours_before_it_is_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 4711)

    found = exposure(tmp_path / "a file", owner=0, mode=0o640)

    assert found is not None
    assert found.endswith(f"chown 4711 '{tmp_path}/a file' && chmod 600 '{tmp_path}/a file'")
    assert exposure(tmp_path / "a file", owner=0, mode=0o600) is None


def test_a_slave_needs_an_id_above_0() -> None:
    error = one_error(brokerRole="SLAVE")

    assert error.key == "brokerId"
    assert "above 0" in error.expected
    assert build(brokerRole="SLAVE", brokerId="2").broker.broker_id == 2


@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SYNC_MASTER"])
def test_a_master_has_id_0_whatever_its_file_contains(role: str) -> None:
    configuration = build(brokerRole=role, brokerId="1")

    assert configuration.broker.broker_id == 0
    (warning,) = configuration.warnings
    assert "brokerId=1" in warning


def test_a_slave_has_no_pool() -> None:
    configuration = build(brokerRole="SLAVE", brokerId="1", transientStorePoolEnable="true")

    assert not configuration.store.is_transient_store_pool_enabled
    (warning,) = configuration.warnings
    assert "transientStorePoolEnable" in warning


def test_the_ha_port_is_one_above_the_listening_port_by_default() -> None:
    assert build().ha.ha_listen_port == 10_912
    assert build(listenPort="20000").ha.ha_listen_port == 20_001
    assert build(listenPort="20000", haListenPort="30000").ha.ha_listen_port == 30_000
