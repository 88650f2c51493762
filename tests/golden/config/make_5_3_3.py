"""Write 5.3.3.txt: the keys that a real broker and name server 5.3.3 read, each with its class.

python -m tests.golden.config.make_5_3_3
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.peer import PACKAGES, classpath

HERE = Path(__file__).parent
KINDS = (
    "org.apache.rocketmq.common.BrokerConfig",
    "org.apache.rocketmq.store.config.MessageStoreConfig",
    "org.apache.rocketmq.remoting.netty.NettyServerConfig",
    "org.apache.rocketmq.remoting.netty.NettyClientConfig",
    "org.apache.rocketmq.auth.config.AuthConfig",
    "org.apache.rocketmq.common.namesrv.NamesrvConfig",
    "org.apache.rocketmq.common.ControllerConfig",
)


def main() -> None:
    command = ["java", "-cp", classpath("5.3.3", PACKAGES), str(HERE / "Keys.java"), *KINDS]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    # Between lines of its log.
    kinds = {name.rpartition(".")[2] for name in KINDS}
    lines = [line for line in done.stdout.splitlines() if line.partition(" ")[0] in kinds]
    (HERE / "5.3.3.txt").write_text("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    main()
