"""Attempts to read more through SQL than a user may, grouped by method.

Written from DuckDB's documentation and its lists of functions, settings and system tables. {file}
is a Parquet file of the lake, {log} a commit of its Delta log, {folder} the lake's directory.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

FILES_BY_FUNCTION = [
    "FROM read_parquet('{file}')",
    "FROM READ_PARQUET(['{file}'])",
    "FROM parquet_scan('{file}')",
    "FROM read_parquet('{folder}/**/*.parquet', filename=true)",
    "FROM read_single_parquet_file('{file}')",
    "FROM parquet_metadata('{file}')",
    "FROM parquet_schema('{file}')",
    "FROM parquet_file_metadata('{file}')",
    "FROM parquet_kv_metadata('{file}')",
    "FROM parquet_full_metadata('{file}')",
    "FROM parquet_bloom_probe('{file}', 'uniq_key', 'x')",
    "FROM read_csv('{log}')",
    "FROM read_csv_auto('{log}')",
    "FROM read_csv('/etc/passwd', sep=':', header=false)",
    "FROM read_single_csv_file('/etc/passwd')",
    "FROM sniff_csv('/etc/passwd')",
    "FROM read_json('{log}')",
    "FROM read_json_auto('{log}')",
    "FROM read_json_objects('{log}')",
    "FROM read_json_objects_auto('{log}')",
    "FROM read_ndjson('{log}')",
    "FROM read_ndjson_auto('{log}')",
    "FROM read_ndjson_objects('{log}')",
    "FROM read_single_json_file('{log}')",
    "FROM read_text('/etc/passwd')",
    "FROM read_text('/proc/self/environ')",
    "FROM read_text('/proc/self/fd/*')",
    "FROM read_text(['{log}', '/etc/hostname'])",
    "FROM read_blob('{file}')",
    "FROM read_duckdb('{folder}/x.duckdb')",
    "FROM glob('{folder}/**')",
    "FROM glob('/*')",
    "FROM main.read_text('/etc/passwd')",
    "FROM system.main.read_text('/etc/passwd')",
    "FROM pg_catalog.read_text('/etc/passwd')",
    "FROM \"read_text\"('/etc/passwd')",
    "FROM read_text(chr(47) || 'etc' || chr(47) || 'passwd')",
    "FROM read_text((SELECT '/etc/passwd'))",
    "FROM read_csv('https://example.com/x.csv')",
    "FROM read_parquet('s3://bucket/x.parquet')",
    "SELECT * FROM range(1), LATERAL (FROM read_text('/etc/passwd'))",
    "SELECT (SELECT content FROM read_text('/etc/passwd'))",
    "SELECT unnest(ARRAY(SELECT content FROM read_text('/etc/passwd')))",
    "SELECT * FROM bronze.messages JOIN read_text('/etc/passwd') ON true",
    "SELECT * FROM bronze.messages WHERE topic IN (SELECT content FROM read_text('/etc/passwd'))",
    "SELECT 1 LIMIT (SELECT length(content) FROM read_text('/etc/passwd'))",
    "VALUES ((SELECT content FROM read_text('/etc/passwd')))",
    "FROM (DESCRIBE FROM read_parquet('{file}'))",
    "FROM (SUMMARIZE FROM read_parquet('{file}'))",
    "SUMMARIZE FROM '{file}'",
    "DESCRIBE FROM '{file}'",
    "(SELECT 1) UNION ALL (SELECT content FROM read_text('/etc/passwd'))",
    "SELECT * FROM (SELECT 1 AS a) PIVOT (count(*) FOR a IN (SELECT file FROM glob('/*')))",
    "FROM which_secret('s3://bucket/x', 's3')",
]
FILES_BY_NAME = [
    "FROM '{file}'",
    'FROM "{file}"',
    "FROM '{folder}/bronze/messages/*/*.parquet'",
    "FROM '{log}'",
    "FROM '/etc/passwd'",
    "FROM '/etc/passwd.csv'",
    "FROM 'file:///etc/passwd'",
    "FROM 'x.csv'",
    "FROM 'x.tsv'",
    "FROM 'x.json'",
    "FROM 'x.ndjson'",
    "FROM 'x.jsonl.gz'",
    "FROM 'x.parquet'",
    "FROM 'x.db'",
    "FROM 'x.duckdb'",
    "FROM 'x.sqlite'",
    "FROM 'x.xlsx'",
    "FROM 'https://example.com/x.parquet'",
    "FROM 's3://bucket/x.parquet'",
    "FROM 'hf://datasets/x/y.parquet'",
    "FROM 'gcs://bucket/x.parquet'",
    "FROM '/dev/stdin'",
    "FROM '/proc/self/environ'",
    "FROM '~/.duckdb/stored_secrets'",
    "TABLE '{file}'",
    "SELECT * FROM range(1) JOIN '{file}' ON true",
    "SELECT * FROM bronze.messages POSITIONAL JOIN '{file}'",
    "SELECT * FROM bronze.messages AS m ASOF JOIN '{file}' AS f ON m.day >= f.day",
    "SELECT * FROM bronze.messages WHERE EXISTS (FROM '{file}')",
    "FROM '{file}' AS f SELECT f.body",
    "FROM '{file}' TABLESAMPLE 1 ROWS",
    "FROM (UNPIVOT '{file}' ON topic, uniq_key INTO NAME n VALUE v)",
    "FROM '{file}' AT (VERSION => 1)",
    "FROM main.'{file}'",
    'FROM memory.main."{file}"',
    'FROM bronze."../../etc/passwd"',
    "FROM sys",
    "FROM place",
    "FROM self",
]
NAMES_IN_WITH = [
    # The anchor of a recursive query doesn't see the query's name: DuckDB looks for another table.
    'WITH RECURSIVE "{file}" AS (SELECT topic, body FROM "{file}" UNION ALL '
    'SELECT * FROM "{file}" WHERE false) SELECT * FROM "{file}"',
    "WITH RECURSIVE sqlite_master AS (SELECT sql FROM sqlite_master UNION ALL "
    "SELECT * FROM sqlite_master WHERE false) SELECT * FROM sqlite_master",
    "WITH RECURSIVE duckdb_views AS (SELECT sql FROM duckdb_views UNION ALL "
    "SELECT * FROM duckdb_views WHERE false) SELECT * FROM duckdb_views",
    "WITH RECURSIVE pg_views AS (SELECT definition FROM pg_views UNION "
    "SELECT * FROM pg_views WHERE false) SELECT * FROM pg_views",
    "WITH RECURSIVE duckdb_logs USING KEY (message) AS (SELECT message FROM duckdb_logs UNION "
    "SELECT * FROM duckdb_logs WHERE false) SELECT * FROM duckdb_logs",
    "WITH RECURSIVE pragma_database_list AS (SELECT file FROM pragma_database_list UNION ALL "
    "SELECT * FROM pragma_database_list WHERE false) SELECT * FROM pragma_database_list",
    # A name isn't visible in the query that it names, before it, or outside of its parentheses.
    'WITH "{file}" AS (FROM "{file}") FROM "{file}"',
    'WITH a AS (FROM "{file}"), "{file}" AS (SELECT 1) FROM a',
    'FROM (WITH "{file}" AS (SELECT 1) FROM "{file}"), "{file}"',
    'SELECT (WITH "{file}" AS (SELECT 1) SELECT 1), body FROM "{file}"',
    'WITH a AS (WITH "{file}" AS (SELECT 1) SELECT 1) SELECT * FROM "{file}"',
    'WITH "{file}" AS MATERIALIZED (FROM "{file}") FROM "{file}"',
    'WITH "{file}" AS NOT MATERIALIZED (FROM "{file}") FROM "{file}"',
    'WITH "{file}"(a) AS (SELECT 1) SELECT * FROM "{file}"',
    "(WITH \"{file}\" AS (SELECT 'x') SELECT 'y') UNION ALL (SELECT body FROM \"{file}\")",
    'SELECT * FROM range(1), LATERAL (WITH "{file}" AS (SELECT 1) SELECT 2), "{file}"',
    "WITH sqlite_master AS (FROM sqlite_master) FROM sqlite_master",
    "WITH sqlite_schema AS (FROM sqlite_schema) FROM sqlite_schema",
    "WITH sqlite_temp_master AS (FROM sqlite_temp_master) FROM sqlite_temp_master",
    "WITH sqlite_temp_schema AS (FROM sqlite_temp_schema) FROM sqlite_temp_schema",
    "WITH a AS (FROM duckdb_views), duckdb_views AS (SELECT 1) FROM a",
    "FROM (WITH duckdb_tables AS (SELECT 1) FROM duckdb_tables), duckdb_tables",
    "WITH DUCKDB_SETTINGS AS (FROM duckdb_settings) FROM duckdb_settings",
    "WITH pg_class AS (FROM pg_class) FROM pg_class",
    "WITH pg_settings AS (FROM pg_settings) FROM pg_settings",
    'WITH "duc\u212adb_views" AS (SELECT 1) FROM duckdb_views',
    'WITH "bronze.messages" AS (SELECT 1) FROM "bronze.messages"',
    'WITH "bronze.x" AS (SELECT 1) FROM bronze.x',
    "WITH bronze AS (SELECT 1 AS gaps) FROM bronze.gaps",
    'WITH "x.csv" AS (FROM "x.csv") FROM "x.csv"',
    'WITH "https://example.com/x.json" AS (SELECT 1) FROM "https://example.com/x.json"',
    'WITH "s3://b/x" AS (SELECT 1) FROM "s3://b/x"',
    'WITH "/etc/passwd" AS (SELECT 1) FROM "/etc/passwd"',
    'WITH "C:\\x" AS (SELECT 1) FROM "C:\\x"',
    'WITH "*" AS (SELECT 1) FROM "*"',
    'WITH "x?" AS (SELECT 1) FROM "x?"',
    'WITH "x[1]" AS (SELECT 1) FROM "x[1]"',
    'WITH "~" AS (SELECT 1) FROM "~"',
    # Names of tables in FROM.
    'SELECT * FROM range(1) AS "{file}"',
    'SELECT * FROM (SELECT 1) AS "/etc/passwd.csv"',
    'SELECT * FROM bronze.messages AS "{file}", "{file}"',
    'SELECT * FROM bronze.messages "https://example.com/x.csv" JOIN range(1) ON true',
    "SELECT * FROM range(1) AS duckdb_views, duckdb_views",
    "SELECT * FROM (VALUES (1)) AS sqlite_master(a), sqlite_master",
]
_TABLES_OF_DUCKDB = """
information_schema.tables information_schema.columns information_schema.schemata
information_schema.views information_schema.table_constraints information_schema.key_column_usage
information_schema.character_sets information_schema.referential_constraints
pg_catalog.pg_class pg_catalog.pg_views pg_catalog.pg_tables pg_catalog.pg_attribute
pg_catalog.pg_settings pg_catalog.pg_namespace pg_catalog.pg_database pg_catalog.pg_proc
pg_catalog.pg_type pg_catalog.pg_prepared_statements pg_class pg_views pg_settings
sqlite_master sqlite_schema sqlite_temp_master sqlite_temp_schema main.sqlite_master
system.main.sqlite_master system.information_schema.tables memory.main.sqlite_master
duckdb_columns duckdb_constraints duckdb_databases duckdb_indexes duckdb_logs duckdb_schemas
duckdb_tables duckdb_types duckdb_views main.duckdb_views system.main.duckdb_views
pragma_database_list temp.main."bronze.messages" temp."bronze.messages" "bronze.messages"
main."bronze.messages" memory.bronze.messages bronze.main.messages given bronze.gaps
bronze.forgotten bronze.x gold.x
"""
SYSTEM_TABLES = [f"FROM {table}" for table in _TABLES_OF_DUCKDB.split()]
_FUNCTIONS_OF_DUCKDB = """
duckdb_approx_database_count duckdb_available_metrics duckdb_columns duckdb_connection_count
duckdb_constraints duckdb_databases duckdb_dependencies duckdb_dialects duckdb_eviction_queues
duckdb_extension_repositories duckdb_extensions duckdb_external_file_cache
duckdb_external_resource_types duckdb_external_resources duckdb_functions
duckdb_grammar_extensions duckdb_indexes duckdb_keywords duckdb_log_contexts duckdb_logs
duckdb_logs_parsed duckdb_memory duckdb_optimizers duckdb_prepared_statements
duckdb_profiling_settings duckdb_schemas duckdb_secret_type_parameters duckdb_secret_types
duckdb_secrets duckdb_sequences duckdb_settings duckdb_tables duckdb_temporary_files
duckdb_triggers duckdb_types duckdb_variables duckdb_views icu_calendar_names pg_timezone_names
pragma_collations pragma_database_size pragma_metadata_info pragma_platform pragma_user_agent
pragma_version main.duckdb_views system.main.duckdb_settings test_all_types test_vector_types
"""
SYSTEM_FUNCTIONS = [
    *(f"FROM {name}()" for name in _FUNCTIONS_OF_DUCKDB.split()),
    "FROM pragma_table_info('bronze.messages')",
    "FROM pragma_show('bronze.messages')",
    "FROM pragma_storage_info('bronze.messages')",
    "FROM duckdb_table_sample('bronze.messages')",
    "FROM histogram('bronze.messages', topic)",
    "FROM histogram_values('bronze.messages', topic)",
    "FROM summary((FROM bronze.messages))",
    "SELECT (SELECT count(*) FROM duckdb_settings())",
    "SELECT value FROM duckdb_settings() WHERE name = 'allowed_directories'",
    "FROM (DESCRIBE bronze.gaps)",
    "FROM (SHOW TABLES)",
    "FROM (SHOW ALL TABLES)",
    "FROM (SHOW DATABASES)",
    "FROM (SHOW VARIABLES)",
]
_CALLS = """
pg_get_constraintdef(1) pg_get_expr('a',1) pg_has_role('a','b','c')
has_table_privilege('bronze.gaps','select') has_schema_privilege('bronze','usage')
has_any_column_privilege('bronze.gaps','select') col_description(1,1) obj_description(1)
shobj_description(1,'a') format_type(1,1) pg_typeof(1) map_to_pg_oid('int')
pg_table_is_visible(1) pg_my_temp_schema() pg_postmaster_start_time() pg_conf_load_time()
pg_size_pretty(1) inet_server_addr() inet_client_addr() current_setting('allowed_paths')
current_setting('allowed_directories') current_setting('secret_directory')
main.current_setting('home_directory') getenv('HOME') getvariable('x') current_database()
current_schema() current_schemas(true) current_catalog() current_role() session_user()
current_query() current_query_id() current_connection_id() current_transaction_id()
txid_current() version() in_search_path('memory','bronze') get_block_size('memory')
nextval('s') currval('s') stats(1) vector_type(1) get_type(1) make_type('INTEGER')
can_cast_implicitly(1,NULL::INT) json_serialize_plan('SELECT') json_serialize_sql('SELECT')
json_deserialize_sql('{}') parse_duckdb_log_message('a','b') parse_path('/a/b')
hive_partition_component('a',1) index_key('a') invoke(1) no_such_function(1)
__internal_barrier(1) __internal_json_copy_to_json(1) __cast(1)
"""
TELLING_FUNCTIONS = [
    "SELECT pg_get_viewdef(i) FROM range(20000, 30000) t(i)",
    "SELECT pg_catalog.pg_get_viewdef(i) FROM range(20000, 30000) t(i)",
    "SELECT system.pg_catalog.pg_get_viewdef(1)",
    "SELECT PG_GET_VIEWDEF(1)",
    'SELECT "pg_get_viewdef"(1)',
    "SELECT (1).pg_get_viewdef()",
    "SELECT i.pg_get_viewdef() FROM range(20000, 30000) t(i)",
    "SELECT pg_get_viewdef(1) OVER ()",
    "SELECT list_transform(range(20000, 30000), lambda i: pg_get_viewdef(i))",
    "SELECT [pg_get_viewdef(i) FOR i IN range(20000, 30000)]",
    "SELECT {'a': pg_get_viewdef(1)}",
    "SELECT MAP {'a': pg_get_viewdef(1)}",
    "SELECT CASE WHEN true THEN pg_get_viewdef(1) END",
    "SELECT coalesce(NULL, pg_get_viewdef(1))",
    "SELECT try(pg_get_viewdef(1))",
    "SELECT CAST(pg_get_viewdef(1) AS VARCHAR)",
    "SELECT string_agg(pg_get_viewdef(i) ORDER BY i) FROM range(9) t(i)",
    "SELECT count(*) FILTER (pg_get_viewdef(1) IS NULL)",
    "SELECT 1 FROM range(1) t(i) WHERE error(pg_get_viewdef(i))",
    "SELECT 1 FROM range(1) t(i) GROUP BY pg_get_viewdef(i)",
    "SELECT 1 FROM range(1) t(i) GROUP BY GROUPING SETS ((pg_get_viewdef(i)))",
    "SELECT 1 FROM range(1) t(i) HAVING pg_get_viewdef(1) IS NULL",
    "SELECT 1 FROM range(1) t(i) QUALIFY pg_get_viewdef(i) IS NULL",
    "SELECT 1 FROM range(1) t(i) ORDER BY pg_get_viewdef(i)",
    "SELECT DISTINCT ON (pg_get_viewdef(i)) 1 FROM range(1) t(i)",
    "SELECT 1 LIMIT length(pg_get_viewdef(1))",
    "SELECT 1 OFFSET length(pg_get_viewdef(1))",
    "SELECT sum(i) OVER (PARTITION BY pg_get_viewdef(i)) FROM range(1) t(i)",
    "SELECT sum(i) OVER (ORDER BY pg_get_viewdef(i)) FROM range(1) t(i)",
    "SELECT sum(i) OVER w FROM range(1) t(i) WINDOW w AS (ORDER BY pg_get_viewdef(i))",
    "SELECT * REPLACE (pg_get_viewdef(range) AS range) FROM range(1)",
    "SELECT COLUMNS(c -> c = pg_get_viewdef(1)) FROM range(1)",
    "SELECT pg_get_viewdef(COLUMNS(*)) FROM range(1)",
    "SELECT * FROM range(1) a JOIN range(1) b ON pg_get_viewdef(1) IS NULL",
    "SELECT * FROM range(length(pg_get_viewdef(1)))",
    "SELECT unnest([pg_get_viewdef(1)])",
    "VALUES (pg_get_viewdef(1))",
    "SELECT 1 WHERE pg_get_viewdef(1) = ANY (SELECT 'x')",
    "SELECT 1 BETWEEN length(pg_get_viewdef(1)) AND 2",
    "SELECT * FROM (VALUES (1)) t(a) PIVOT (max(pg_get_viewdef(a)) FOR a IN (1))",
    *(f"SELECT {call}" for call in _CALLS.split()),
]
SQL_IN_TEXT = [
    "FROM query('FROM duckdb_views()')",
    "FROM query('FROM ' || chr(39) || '{file}' || chr(39))",
    "FROM query_table('bronze.gaps')",
    "FROM query_table('{file}')",
    "FROM query_table(['{file}'])",
    "FROM query_table(['bronze.messages', 'duckdb_views'], true)",
    "FROM json_execute_serialized_sql(json_serialize_sql('FROM duckdb_views()'))",
    "FROM json_execute_serialized_sql('{}')",
    "FROM python_map_function('x')",
    "FROM json_each('[1]')",
    "FROM json_tree('[1]')",
    "SELECT json_deserialize_sql(json_serialize_sql('FROM duckdb_views()'))",
]
STATEMENTS = [
    "SELECT 1; SELECT 2",
    "SELECT 1; FROM read_text('/etc/passwd')",
    "SELECT 1; /* */ ATTACH '{folder}/x.db'; --",
    "SET enable_external_access = true; FROM '{file}'",
    "SET allowed_directories = ['/']",
    "SET GLOBAL allowed_paths = ['{file}']",
    "SET file_search_path = '/etc'",
    "SET lock_configuration = false",
    "SET VARIABLE x = 1",
    "SET SESSION search_path = 'temp'",
    "SET python_enable_replacements = true",
    "RESET allowed_paths",
    "PRAGMA database_list",
    "PRAGMA show_tables",
    "PRAGMA table_info('bronze.messages')",
    "PRAGMA version",
    "PRAGMA enable_profiling",
    "PRAGMA functions",
    "CALL duckdb_views()",
    "CALL pragma_version()",
    "CALL enable_logging()",
    "COPY (SELECT 1) TO '/tmp/taken.csv'",
    "COPY (FROM bronze.messages) TO '{folder}/taken.parquet'",
    "COPY x FROM '{file}'",
    "EXPORT DATABASE '/tmp/taken'",
    "IMPORT DATABASE '{folder}'",
    "ATTACH '{folder}/x.db' AS x",
    "ATTACH ':memory:' AS x",
    "DETACH memory",
    "USE system",
    "INSTALL httpfs",
    "LOAD httpfs",
    "LOAD '{folder}/x.duckdb_extension'",
    "UPDATE EXTENSIONS",
    "CREATE SECRET x (TYPE s3)",
    "CREATE VIEW x AS FROM '{file}'",
    "CREATE TABLE x AS FROM '{file}'",
    "CREATE MACRO x() AS TABLE FROM '{file}'",
    "CREATE TEMP MACRO x() AS pg_get_viewdef(1)",
    "CREATE TYPE x AS ENUM (FROM '{file}')",
    "CREATE SEQUENCE x",
    "CREATE SCHEMA x",
    "DROP VIEW bronze.messages",
    "ALTER VIEW bronze.messages RENAME TO x",
    "INSERT INTO bronze.messages SELECT 1",
    "UPDATE bronze.messages SET topic = 'x'",
    "DELETE FROM bronze.messages",
    "TRUNCATE bronze.messages",
    "MERGE INTO bronze.messages USING range(1) ON true WHEN MATCHED THEN DELETE",
    "WITH x AS (INSERT INTO t VALUES (1) RETURNING *) FROM x",
    "WITH x AS (UPDATE t SET a = 1 RETURNING *) FROM x",
    "WITH x AS (DELETE FROM t RETURNING *) FROM x",
    "WITH x AS (MERGE INTO t USING range(1) ON true WHEN MATCHED THEN DELETE RETURNING *) FROM x",
    "EXPLAIN FROM bronze.messages",
    "EXPLAIN ANALYZE FROM bronze.messages",
    "PREPARE x AS FROM '{file}'",
    "EXECUTE x",
    "DEALLOCATE x",
    "BEGIN TRANSACTION",
    "CHECKPOINT",
    "VACUUM",
    "ANALYZE",
    "COMMENT ON VIEW bronze.messages IS 'x'",
    "SHOW TABLES",
    "SHOW ALL TABLES",
    "SHOW DATABASES",
    "DESCRIBE bronze.gaps",
    "PIVOT bronze.messages ON topic USING count(*)",
    "SELECT $1",
    "SELECT ?",
    "SELECT $name",
]
"""Statements that act, or aren't a SELECT."""
ACTS = [
    "FROM arrow_scan(1, 2, 3)",
    "FROM arrow_scan_dumb(1, 2, 3)",
    "FROM pandas_scan(1)",
    "FROM python_arrow_scan()",
    "FROM python_arrow_scan(1)",
    "FROM python_map_function()",
    "FROM seq_scan()",
    "SELECT sleep_ms(100000)",
    "SELECT pg_sleep(100)",
    "SELECT setseed(0.5)",
    "SELECT setval('s', 1)",
    "SELECT write_log('x')",
    "SELECT write_log('x', level := 'error', scope := 'database')",
    "SELECT finalize('\\x00'::BLOB)",
    "SELECT combine('\\x00'::BLOB, '\\x00'::BLOB)",
    "SELECT to_aggregate_state('\\x00'::BLOB)",
    "SELECT sum(range) EXPORT_STATE FROM range(1)",
    "SELECT variant_bytes_to_variant('\\x00'::BLOB)",
    "SELECT create_sort_key(1, 'ASC')",
    "FROM enable_logging('QueryLog')",
    "FROM disable_logging()",
    "FROM enable_profiling()",
    "FROM truncate_duckdb_logs()",
    "FROM checkpoint()",
    "FROM force_checkpoint()",
    "FROM create_external_resource('x')",
    "FROM destroy_external_resource('x')",
    "FROM register_external_resource('x')",
    "FROM register_external_resource_type('x')",
    "FROM deregister_external_resource('x')",
]
"""Calls that must not reach DuckDB because they act, wait, or accept a memory address."""

REFUSED = {
    "files_by_function": FILES_BY_FUNCTION,
    "files_by_name": FILES_BY_NAME,
    "names_in_with": NAMES_IN_WITH,
    "system_tables": SYSTEM_TABLES,
    "system_functions": SYSTEM_FUNCTIONS,
    "telling_functions": TELLING_FUNCTIONS,
    "sql_in_text": SQL_IN_TEXT,
    "statements": STATEMENTS,
    "acts": ACTS,
}

OTHER_TOPICS = [
    "FROM bronze.messages",
    "FROM bronze.messages WHERE topic = 'bank-transfers'",
    "FROM bronze.messages WHERE topic <> 'shop-orders'",
    "FROM bronze.messages WHERE topic NOT IN ('shop-orders', 'shop-bills')",
    "FROM bronze.messages WHERE topic LIKE 'bank%'",
    "FROM bronze.messages WHERE topic >= 'a' AND topic < 'c'",
    "FROM bronze.messages WHERE topic IS NULL OR true",
    "FROM bronze.messages WHERE NOT (topic = 'shop-orders')",
    "FROM bronze.messages WHERE uniq_key = 'bank-uniq'",
    "FROM bronze.messages WHERE uniq_key > 'F' OR topic = 'x'",
    "FROM bronze.messages WHERE list_contains(keys, 'bank-key')",
    "FROM bronze.messages WHERE queue_id >= 0 ORDER BY ALL",
    "FROM bronze.messages TABLESAMPLE 100%",
    "SELECT DISTINCT topic, tags, keys, properties, decode(body) FROM bronze.messages",
    "SELECT min(topic), max(topic), mode(topic), histogram(topic) FROM bronze.messages",
    "SELECT arg_min(topic, topic), approx_top_k(topic, 9), list(topic) FROM bronze.messages",
    "SELECT topic, lag(topic) OVER (ORDER BY topic), lead(topic) OVER (ORDER BY topic) "
    "FROM bronze.messages",
    "SELECT * FROM bronze.messages a FULL JOIN bronze.messages b USING (commit_log_offset)",
    "SELECT * FROM bronze.messages a ANTI JOIN bronze.messages b ON a.topic = b.tags",
    "SELECT * FROM range(100) t(i) LEFT JOIN bronze.messages ON queue_offset = i",
    "SELECT * FROM bronze.messages, LATERAL (SELECT bronze.messages.topic)",
    "SELECT (SELECT topic FROM bronze.messages WHERE topic > 'a' ORDER BY 1 LIMIT 1)",
    "FROM bronze.messages UNION FROM bronze.messages EXCEPT SELECT * FROM bronze.messages LIMIT 0",
    "SELECT topic FROM bronze.messages WHERE error(topic)",
    "SELECT topic FROM bronze.messages WHERE CASE WHEN topic < 'c' THEN error(topic) ELSE true END",
    "SELECT topic FROM bronze.messages WHERE topic = 'shop-orders' OR CAST(topic AS INTEGER) > 0",
    "SELECT CAST(topic AS INTEGER) FROM bronze.messages",
    "SELECT CAST(uniq_key AS DATE) FROM bronze.messages",
    "SELECT 1 / (CASE WHEN topic < 'c' THEN 0 ELSE 1 END) FROM bronze.messages",
    "SELECT strptime(tags, '%Y') FROM bronze.messages",
    "FROM bronze.events",
    "FROM bronze.samples",
    "FROM gold.traffic_minute",
    "FROM gold.traffic_minute WHERE topic = 'bank-transfers'",
    "FROM gold.latency_minute WHERE topic < 'c'",
    "FROM gold.keys_day WHERE key = 'bank-key'",
    "SELECT key, sum(messages) FROM gold.keys_day GROUP BY ROLLUP (key)",
    "FROM (SUMMARIZE bronze.messages)",
    "FROM (SUMMARIZE gold.keys_day)",
    "SELECT to_json(m) FROM bronze.messages m",
    "SELECT COLUMNS('.*') FROM bronze.messages",
    "WITH RECURSIVE r AS (SELECT topic, 1 AS n FROM bronze.messages UNION ALL "
    "SELECT topic, n + 1 FROM r WHERE n < 2) FROM r",
]
MASKED_VALUES = [
    *(
        f"SELECT {shown} FROM bronze.messages"
        for shown in (
            "*",
            "body, properties",
            "decode(body)",
            "CAST(body AS VARCHAR)",
            "hex(body), base64(body), to_base64(body)",
            "reverse(CAST(body AS VARCHAR))",
            "md5(body), sha256(body), hash(body)",
            "body[11:27], substr(CAST(body AS VARCHAR), 11, 16)",
            "regexp_extract_all(decode(body), '[0-9]+')",
            "string_split(decode(body), ',')",
            "decode(body)::JSON ->> '$.card'",
            "json_extract(decode(body), '$.*')",
            "properties['token'], properties['note']",
            "map_values(properties), map_entries(properties)",
            "unnest(map_values(properties))",
            "list_transform(map_entries(properties), lambda e: e.value)",
            "list(body), min(body), max(body), arg_max(body, queue_id)",
            "string_agg(decode(body), ' ')",
            "histogram(body), approx_top_k(body, 9)",
            "lag(body) OVER (ORDER BY commit_log_offset)",
            "first(body) FILTER (topic = 'shop-orders')",
            "struct_pack(*COLUMNS(*))",
            "to_json(bronze.messages)",
            "bitstring_agg(octet_length(body))",
            "levenshtein(decode(body), ''), decode(body) || ''",
        )
    ),
    *(
        f"SELECT 'found', commit_log_offset FROM bronze.messages WHERE {condition}"
        for condition in (
            "body = '{body}'::BLOB",
            "body IN ('{body}'::BLOB)",
            "body >= '{body}'::BLOB AND body <= '{body}'::BLOB",
            "body BETWEEN '{body}'::BLOB AND '{body}'::BLOB",
            "NOT (body <> '{body}'::BLOB)",
            "body IS NOT DISTINCT FROM '{body}'::BLOB",
            "decode(body) LIKE '%{card}%'",
            "contains(decode(body), '{card}')",
            "regexp_matches(decode(body), '{card}')",
            "position('{card}' IN decode(body)) > 0",
            "md5(body) = md5('{body}'::BLOB)",
            "body_crc = {crc}",
            "body_crc IN ({crc})",
            "body_crc BETWEEN {crc} AND {crc}",
            "properties['token'] = '{token}'",
            "properties['note'] LIKE '%{card}%'",
            "list_contains(map_values(properties), '{token}')",
            "map_contains_value(properties, '{token}')",
            "CASE WHEN decode(body) LIKE '%{card}%' THEN error('found') ELSE false END",
            "CAST(properties['note'] AS INTEGER) > 0 AND false",
        )
    ),
    "SELECT 'found', a.topic FROM bronze.messages a JOIN (SELECT '{body}'::BLOB AS body) b "
    "USING (body)",
    "SELECT 'found', topic FROM bronze.messages WHERE body IN (SELECT '{body}'::BLOB)",
]
"""Attempts to see or to find {body}, {card}, {token} or {crc}, which masking rules hide."""

TABLES = [
    "'{file}'",
    "sqlite_master",
    "duckdb_views",
    "information_schema.tables",
    "pg_catalog.pg_class",
    "bronze.gaps",
    "read_text('/etc/passwd')",
    "duckdb_settings()",
    "query('FROM duckdb_views()')",
    "glob('{folder}/**')",
]
PLACES_OF_TABLES = [
    "SELECT * FROM {}",
    "SELECT * FROM (FROM {})",
    "WITH a AS (FROM {}) FROM a",
    "WITH a AS MATERIALIZED (FROM {}), b AS (FROM a) FROM b",
    "WITH RECURSIVE a AS (SELECT 1 AS x FROM {} UNION ALL SELECT x FROM a WHERE false) FROM a",
    "WITH RECURSIVE a AS (SELECT 1 AS x UNION SELECT 2 FROM {}, a WHERE x < 2) FROM a",
    "WITH a AS (WITH a AS (FROM {}) FROM a) FROM a",
    "SELECT * FROM bronze.messages, {}",
    "SELECT * FROM bronze.messages LEFT JOIN {} ON true",
    "SELECT * FROM bronze.messages SEMI JOIN {} ON true",
    "SELECT * FROM bronze.messages, LATERAL (FROM {})",
    "SELECT * FROM bronze.messages WHERE EXISTS (FROM {})",
    "SELECT (SELECT count(*) FROM {})",
    "SELECT ARRAY(SELECT 1 FROM {})",
    "SELECT 1 IN (SELECT 1 FROM {})",
    "SELECT 1 = ALL (SELECT 1 FROM {})",
    "SELECT 1 LIMIT (SELECT count(*) FROM {})",
    "SELECT 1 ORDER BY (SELECT count(*) FROM {})",
    "SELECT 1 GROUP BY ALL HAVING (SELECT count(*) FROM {}) > 0",
    "SELECT 1 QUALIFY row_number() OVER (ORDER BY (SELECT count(*) FROM {})) = 1",
    "VALUES ((SELECT count(*) FROM {}))",
    "(SELECT 1) UNION ALL (SELECT count(*) FROM {})",
    "(SELECT 1) EXCEPT (SELECT count(*) FROM {})",
    "SELECT * FROM range((SELECT count(*) FROM {}))",
    "SELECT unnest([(SELECT count(*) FROM {})])",
    "SELECT list_transform([1], lambda x: x + (SELECT count(*) FROM {}))",
    "SELECT sum(1) FILTER ((SELECT count(*) FROM {}) > 0)",
    "FROM (SUMMARIZE FROM {})",
]


def combinations(tables: Sequence[str]) -> list[str]:
    """Return each of these tables in each place where a query can have one."""
    return [place.replace("{}", table) for place, table in product(PLACES_OF_TABLES, tables)]
