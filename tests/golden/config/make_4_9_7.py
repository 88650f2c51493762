"""Write 4.9.7.txt: the keys of a real broker 4.9.7, with their defaults.

    python -m tests.golden.config.make_4_9_7

Machine-dependent values (addresses, host name, home, number of processors) are those of the
machine that runs it.
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
)


def main() -> None:
    command = ["java", "-cp", classpath("4.9.7", PACKAGES), str(HERE / "Defaults.java"), *KINDS]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (HERE / "4.9.7.txt").write_text(done.stdout)


if __name__ == "__main__":
    main()
