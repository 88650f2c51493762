from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from broker_core.config.loading import build
from broker_core.errors import ConfigError
from broker_core.extensions.loading import Extensions, load
from tests.support.installed_packages import install

if TYPE_CHECKING:
    from pathlib import Path

SEND = "trebuchet.send_message_hooks"
HOOK = """
class Hook:
    interface_version = 1

    def __init__(self, context):
        self.context = context
        self.closed = 0

    def send_message_before(self, context):
        pass

    def send_message_after(self, context):
        pass

    def close(self):
        self.closed += 1
"""


def loaded(**keys: str) -> Extensions:
    configuration, errors = build(keys)
    assert not errors, [str(error) for error in errors]
    return load(configuration, "127.0.0.1:10911")


def refusal(**keys: str) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(**keys)
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


@pytest.fixture(autouse=True)
def _forget_modules() -> None:
    for name in ("ext_a", "ext_b"):
        sys.modules.pop(name, None)


def test_an_installed_extension_is_not_automatically_active(site: Path) -> None:
    install(site, "hooks", "1.0", {SEND: {"a": "ext_a:Hook"}}, ext_a="raise SystemExit")

    extensions = loaded()

    assert extensions.send_message_hooks == ()
    assert extensions.runtime_info() == {}
    assert "ext_a" not in sys.modules


def test_names_are_loaded_in_order_with_their_options(site: Path) -> None:
    install(site, "hooks", "1.0", {SEND: {"a": "ext_a:Hook", "b": "ext_a:Hook"}}, ext_a=HOOK)

    extensions = loaded(sendMessageHooks="b, a", brokerName="br", **{"extension.b.depth.max": "3"})

    assert [one.label for one in extensions.send_message_hooks] == [
        "sendMessageHooks.b",
        "sendMessageHooks.a",
    ]
    first = extensions.send_message_hooks[0].extension.context  # type: ignore[attr-defined]
    assert (first.name, first.broker_name, first.broker_addr) == ("b", "br", "127.0.0.1:10911")
    assert first.options == {"depth.max": "3"}
    assert extensions.runtime_info() == {
        "extensions": "sendMessageHooks.b:hooks 1.0,sendMessageHooks.a:hooks 1.0",
        "extensionFailures": "sendMessageHooks.b:0,sendMessageHooks.a:0",
    }


def test_an_unknown_name_is_answered_with_the_installed_ones(site: Path) -> None:
    install(site, "hooks", "1.0", {SEND: {"x": "ext_a:Hook", "b": "ext_a:Hook"}}, ext_a=HOOK)

    assert refusal(sendMessageHooks="a") == (
        "sendMessageHooks=a: expected names of installed extensions, but there is no 'a' in the "
        "entry point group trebuchet.send_message_hooks, which has: b, x"
    )


def test_missing_extensions_are_reported() -> None:
    assert refusal(rpcHooks="a").endswith("trebuchet.rpc_hooks, which has: none")


def test_a_name_in_two_packages_is_rejected(site: Path) -> None:
    install(site, "one", "1.0", {SEND: {"a": "ext_a:Hook"}}, ext_a=HOOK)
    install(site, "two", "2.0", {SEND: {"a": "ext_b:Hook"}}, ext_b=HOOK)

    assert refusal(sendMessageHooks="a").endswith("but 'a' is in packages one 1.0 and two 2.0")


@pytest.mark.parametrize(
    ("module", "why"),
    [
        ("import not_there", "ModuleNotFoundError: No module named 'not_there'"),
        ("class Other: pass", "AttributeError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("raise ValueError('two\\nlines')", "ValueError: two lines"),
    ],
)
def test_an_import_error_is_reported_in_one_sentence_with_its_package(
    site: Path, module: str, why: str
) -> None:
    install(site, "hooks", "1.0", {SEND: {"a": "ext_a:Hook"}}, ext_a=module)

    sentence = refusal(sendMessageHooks="a")

    assert "'a' of package hooks 1.0 cannot: " in sentence
    assert why in sentence


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("interface_version = 1", "", "has interface_version None, where this broker has 1"),
        ("version = 1", "version = 2", "has interface_version 2, where this broker has 1"),
        (
            "send_message_after(self, context)",
            "another(self)",
            "has no method send_message_after with one argument",
        ),
        (
            "send_message_after(self, context)",
            "send_message_after(self)",
            "has another signature than that of send_message_after with one argument",
        ),
        (
            "def send_message_before",
            "async def send_message_before",
            "has a coroutine where a plain method is called: send_message_before with one argument",
        ),
        ("self.context = context", "raise ValueError('no file')", "made: ValueError: no file"),
        ("class Hook:", "Hook = 3\nclass Other:", "is not a class or function but int"),
    ],
)
def test_an_incompatibility_is_reported_in_one_sentence_with_its_package(
    site: Path, old: str, new: str, why: str
) -> None:
    install(site, "hooks", "1.0", {SEND: {"a": "ext_a:Hook"}}, ext_a=HOOK.replace(old, new))

    sentence = refusal(sendMessageHooks="a")

    assert "'a' of package hooks 1.0 " in sentence
    assert sentence.endswith(why)


def test_objects_created_before_a_failure_are_closed(site: Path) -> None:
    making = "MADE = []\ndef make(context):\n    MADE.append(Hook(context))\n    return MADE[-1]\n"
    module = HOOK + making
    install(site, "hooks", "1.0", {SEND: {"a": "ext_a:make", "b": "ext_a:gone"}}, ext_a=module)

    refusal(sendMessageHooks="a,b")

    assert [hook.closed for hook in sys.modules["ext_a"].MADE] == [1]


def test_each_is_closed_once_and_a_failure_there_does_not_affect_the_others(site: Path) -> None:
    failing = HOOK.replace("self.closed += 1", "raise OSError")
    install(site, "one", "1", {SEND: {"a": "ext_a:Hook"}}, ext_a=HOOK)
    install(site, "two", "1", {SEND: {"b": "ext_b:Hook"}}, ext_b=failing)
    extensions = loaded(sendMessageHooks="a,b")

    extensions.close()
    extensions.close()

    assert extensions.send_message_hooks[0].extension.closed == 1  # type: ignore[attr-defined]
    assert extensions.failures.counts == {"sendMessageHooks.b": 1}
