// The views of the timeline: which rows are shown in which lanes. A view has `lanes` (title, hint,
// `short` where low lanes have another title, `area` where the lane shows how many tasks ran at a
// time instead of each), `rows` by lane and start (null: all rows as they are) and `offsets` of the
// lanes in them.

/** All task runs on the threads of the workers. */
function flattenView(tasks) {
  return { lanes: threadLanes(tasks), rows: null, offsets: tasks.laneOffsets };
}

/** Those of at least so many seconds, on the threads of the workers. */
function compactView(tasks, threshold) {
  const rows = new Uint32Array(tasks.count);
  const offsets = new Uint32Array(tasks.lanes.length + 1);
  let count = 0;
  for (let lane = 0; lane < tasks.lanes.length; lane += 1) {
    for (let row = tasks.laneOffsets[lane]; row < tasks.laneOffsets[lane + 1]; row += 1) {
      if (tasks.durations[row] >= threshold) rows[count++] = row;
    }
    offsets[lane + 1] = count;
  }
  return { lanes: threadLanes(tasks), rows: rows.subarray(0, count), offsets };
}

/** Functions, those that took the most time first; an opened one has a lane for each of its
 * tasks that ran at a time. */
function functionsView(tasks, opened) {
  const byFunction = rowsByFunction(tasks);
  const lanes = [];
  const offsets = [0];
  const parts = [];
  for (const code of tasks.functionsByTime) {
    const rows = byFunction.rows.subarray(byFunction.offsets[code], byFunction.offsets[code + 1]);
    const open = opened.has(code);
    const title = `${open ? "▾" : "▸"} ${shortened(tasks.facts.functions[code], 21)}`;
    const seconds = formatSeconds(tasks.secondsOfFunction[code]);
    const name = shortened(tasks.facts.functions[code], 100);
    const hint = `${name}: ${formatCount(rows.length)} tasks, ${seconds}`;
    for (const [at, part] of (open ? packed(tasks, rows) : [rows]).entries()) {
      lanes.push({ title: at ? "" : title, hint, area: !open, function: code, group: code });
      parts.push(part);
      offsets.push(offsets.at(-1) + part.length);
    }
  }
  const rows = new Uint32Array(tasks.count);
  for (const [at, part] of parts.entries()) rows.set(part, offsets[at]);
  return { lanes, rows, offsets };
}

function threadLanes(tasks) {
  const counts = new Map();
  for (const { worker, thread } of tasks.lanes)
    if (thread !== null) counts.set(worker, (counts.get(worker) ?? 0) + 1);
  return tasks.lanes.map(({ worker, thread }, lane) => {
    const titles = tasks.laneTitle(lane);
    const first = lane === 0 || tasks.lanes[lane - 1].worker !== worker;
    const part = thread === null ? "loop" : counts.get(worker) > 1 ? `thread ${thread}` : "";
    return {
      title: first
        ? [shortened(titles.worker, 20), part].filter(Boolean).join(" · ")
        : `\u2003${part}`,
      short: first ? shortened(titles.worker, 24) : "",
      hint: `${visible(titles.worker)}, ${thread === null ? "event loop" : `thread ${thread}`}`,
      area: false,
      group: worker,
    };
  });
}

/** All rows by function and start. */
function rowsByFunction(tasks) {
  if (!tasks.byFunction) {
    const offsets = new Uint32Array(tasks.facts.functions.length + 1);
    for (let row = 0; row < tasks.count; row += 1) offsets[tasks.functionOf(row) + 1] += 1;
    for (let code = 1; code < offsets.length; code += 1) offsets[code] += offsets[code - 1];
    const free = offsets.slice();
    const rows = new Uint32Array(tasks.count);
    for (const row of ascending(tasks.starts)) rows[free[tasks.functionOf(row)]++] = row;
    tasks.byFunction = { rows, offsets };
  }
  return tasks.byFunction;
}

/** Spreads rows, ordered by start, over as few lanes as there are tasks at a time. */
function packed(tasks, rows) {
  const lanes = [];
  const ends = [];
  for (const row of rows) {
    const start = tasks.starts[row];
    let lane = 0;
    while (lane < ends.length && ends[lane] > start) lane += 1;
    if (lane === ends.length) lanes.push([]);
    lanes[lane].push(row);
    ends[lane] = start + tasks.durations[row];
  }
  return lanes;
}

/** The place of each row's lane in a view, -1 for rows that it does not show. */
function lanesOfRows(view, count) {
  if (view.laneOfRow) return view.laneOfRow;
  const laneOfRow = new Int32Array(count).fill(-1);
  for (let lane = 0; lane < view.lanes.length; lane += 1) {
    for (let at = view.offsets[lane]; at < view.offsets[lane + 1]; at += 1) {
      laneOfRow[view.rows ? view.rows[at] : at] = lane;
    }
  }
  view.laneOfRow = laneOfRow;
  return laneOfRow;
}

/** The longest task of each lane: how far before a time a task that still runs can have begun. */
function longestOfLanes(view, tasks) {
  if (!view.longest) {
    view.longest = new Float64Array(view.lanes.length);
    for (let lane = 0; lane < view.lanes.length; lane += 1) {
      let longest = 0;
      for (let at = view.offsets[lane]; at < view.offsets[lane + 1]; at += 1) {
        longest = Math.max(longest, tasks.durations[view.rows ? view.rows[at] : at]);
      }
      view.longest[lane] = longest;
    }
  }
  return view.longest;
}

/** The places in a view of the rows of a lane that may be seen between two times. */
function seenIn(view, tasks, lane, from, to) {
  const earliest = from - longestOfLanes(view, tasks)[lane];
  const startAt = (at) => tasks.starts[view.rows ? view.rows[at] : at];
  const search = (time) => {
    let [low, high] = [view.offsets[lane], view.offsets[lane + 1]];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (startAt(middle) < time) low = middle + 1;
      else high = middle;
    }
    return low;
  };
  return [search(earliest), search(to)];
}
