"""Files and labels that tests of every address change."""

from __future__ import annotations

from django.urls import reverse

from console.broker.files.models import keep
from console.gateway.files import ConfigFile

TOPICS_TEXT: dict[str, object] = {
    "text": '{"topicConfigTable":{"Orders":{"perm":4,"readQueueNums":4,"writeQueueNums":4}}}'
}
ORDERS = {
    "order": False,
    "perm": 6,
    "readQueueNums": 4,
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0,
    "writeQueueNums": 4,
}
UNLABELLED = {"owner": "", "description": "", "message_type": ""}
LABEL = {**UNLABELLED, "owner": "team-pay"}


def files_world() -> dict[str, str]:
    """Store a version of a file; return the addresses that change the file."""
    orders = {"Orders": {**ORDERS, "perm": 4}}
    version = keep("broker-a", ConfigFile.TOPICS, {**orders, "%DLQ%audit": ORDERS})
    return {
        "files:edit": reverse("files:edit", args=["broker-a", "topics.json"]),
        "files:restore": reverse("files:restore", args=[version.pk]),
    }
