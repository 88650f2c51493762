/* The SQL editor: Ctrl+Enter runs the query; table names, column names and SQL keywords are completed.
   The page also works without this script. */
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const text = document.getElementById("sql-text");
  const list = document.getElementById("sql-suggestions");
  if (!text || !list) return;
  const KEYWORDS = ["SELECT", "FROM", "WHERE", "GROUP BY", "ORDER BY", "HAVING", "LIMIT", "JOIN", "LEFT JOIN", "USING", "DESC", "BETWEEN",
    "DISTINCT", "WITH", "INTERVAL", "count(*)", "sum(", "avg(", "max(", "min(", "approx_count_distinct(", "quantile_cont(", "date_trunc(",
    "list_contains(", "current_date", "now()", "QUALIFY", "IS NULL", "IS NOT NULL", "CASE WHEN", "UNION ALL", "map_extract_value("];
  const SHOWN = 8;
  const names = [...new Set([...document.querySelectorAll("#sql-tables [data-word]")].map((each) => each.dataset.word))];

  function fitting(word) {
    const wanted = word.toLowerCase();
    const whole = [...names, ...KEYWORDS].filter((each) => each.toLowerCase() !== wanted);
    const begins = whole.filter((each) => each.toLowerCase().startsWith(wanted));
    const holds = wanted.length < 3 ? [] : whole.filter((each) => each.toLowerCase().includes(wanted) && !begins.includes(each));
    return [...begins, ...holds].slice(0, SHOWN);
  }

  const put = Completion.on(text, list, (before) => /[\w.]*$/.exec(before)[0], fitting);
  for (const button of document.querySelectorAll("#sql-tables button[data-word]")) {
    button.addEventListener("click", () => put(button.dataset.word));
  }
});
