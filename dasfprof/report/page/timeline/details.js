// The pane that tells all of one task run.

const LISTED_KEYS = 40;
/** More of one text than anyone reads; the rest is counted. */
const LONG_TEXT = 20_000;

/** Fills the pane; `select(row)` is called when the person follows a key. */
function showDetails(pane, tasks, row, select) {
  pane.hidden = row < 0 || !tasks.rowOfKey;
  if (pane.hidden) return;
  const key = tasks.keys[row];
  const [type, dtype, shape] = tasks.result(row);
  const track = tasks.trackTitle(tasks.trackOfRow[row]);
  const facts = [
    ["Key", longText(tasks.keyText(key))],
    ["Function", visible(tasks.functionName(row))],
    ["Step", visible(tasks.stepName(row) ?? "")],
    ["Worker", visible(track.worker)],
    ["Thread", track.thread],
    ["Started", `${formatCell(tasks.starts[row], 3)} s after the begin`],
    ["Ran for", formatSeconds(tasks.durations[row])],
    ["CPU", formatSeconds(tasks.cpu[row])],
    ...tasks.statuses.map((status) => [visible(status.name), formatSeconds(status.seconds[row])]),
    ["Ended in", visible(tasks.stateName(row))],
    ["Inputs", formatBytes(tasks.inputSizes[row])],
    ["Result", formatBytes(tasks.sizes[row])],
    ["Type", visible(type)],
    ["dtype", visible(dtype)],
    ["Shape", visible(shape)],
  ];
  const list = make("dl");
  for (const [name, text] of facts) {
    if (text === "" || text === "unknown") continue;
    list.append(make("dt", {}, name), make("dd", {}, text));
  }
  const title = make("h3", {}, shortened(tasks.functionName(row), 60));
  const close = make(
    "button",
    { type: "button", class: "close", "aria-label": "Close", onclick: () => select(-1) },
    "✕",
  );
  const parts = [make("header", {}, title, close), list];
  const exception = tasks.exceptionText(row);
  if (exception !== null && exception !== "") {
    parts.push(make("h4", { class: "error" }, "Exception"), make("pre", {}, longText(exception)));
  }
  parts.push(
    ...keyList("Needs", "needs", tasks, tasks.dependenciesOf(key), select),
    ...keyList("Is needed by", "needed", tasks, tasks.dependentsOf(key), select),
  );
  pane.replaceChildren(...parts);
  pane.scrollTop = 0;
}

function longText(text) {
  const rest = text.length - LONG_TEXT;
  return rest > 0
    ? `${visible(text.slice(0, LONG_TEXT))} … and ${formatCount(rest)} characters`
    : visible(text);
}

function keyList(title, kind, tasks, keys, select) {
  if (!keys.length) return [];
  const list = make("ul", { class: kind });
  for (const key of keys.subarray(0, LISTED_KEYS)) {
    const row = tasks.rowOfKey[key];
    const text = shortened(tasks.keyText(key), 80);
    const size = row >= 0 ? formatBytes(tasks.sizes[row]) : "did not run";
    const name =
      row >= 0
        ? make("button", { type: "button", onclick: () => select(row) }, text)
        : make("span", {}, text);
    list.append(make("li", {}, name, make("small", {}, ` ${size}`)));
  }
  if (keys.length > LISTED_KEYS) {
    list.append(make("li", {}, `and ${formatCount(keys.length - LISTED_KEYS)} more`));
  }
  return [make("h4", {}, `${title} (${formatCount(keys.length)})`), list];
}
