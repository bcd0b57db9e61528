// The views of the timeline: which rows are shown in which lanes. A view has `lanes` (title, hint,
// `short` where low lanes have another title, `area` where the lane shows how many tasks ran at a
// time instead of each), `rows` by lane and start (null: all rows as they are) and `offsets` of the
// lanes in them. A lane with a `branch` opens and closes; that of a step is `strong`.

/** More steps than this are closed at first. */
const MAX_OPEN = 12;

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

/**
 * Steps with their functions, those with their tasks; without steps the functions alone, those
 * that took the most time first. What is not opened shows how many tasks ran at a time; `opened`
 * has the `branch` of each lane that is.
 */
function hierarchyView(tasks, opened) {
  const lanes = [];
  const offsets = [0];
  const parts = [];
  const add = (lane, rows) => {
    lanes.push(lane);
    parts.push(rows);
    offsets.push(offsets.at(-1) + rows.length);
  };
  const addFunctions = (rows, group, depth) => {
    const byFunction = grouped(tasks, rows, codeOf(tasks, "function"));
    for (const [code, own] of byFunction) {
      const branch = `${group}/${code}`;
      const open = opened.has(branch);
      const lane = branchLane(tasks.facts.functions[code], secondsOf(tasks, own), own, open, depth);
      for (const [at, part] of (open ? packed(tasks, own) : [own]).entries()) {
        add({ ...lane, title: at ? "" : lane.title, area: !open, branch, group: branch }, part);
      }
    }
  };
  const rows = rowsByStart(tasks);
  if (tasks.steps) {
    for (const [step, own] of stepsInOrder(tasks, rows)) {
      const branch = `${step}`;
      const open = opened.has(branch);
      const lane = branchLane(tasks.facts.steps[step], secondsOf(tasks, own), own, open, 0);
      add({ ...lane, area: true, branch, group: branch, strong: true }, own);
      if (open) addFunctions(own, branch, 1);
    }
  } else addFunctions(rows, "", 0);
  const all = new Uint32Array(offsets.at(-1));
  for (const [at, part] of parts.entries()) all.set(part, offsets[at]);
  return { lanes, rows: all, offsets };
}

function branchLane(name, seconds, rows, open, depth) {
  const mark = `${"\u2003".repeat(depth)}${open ? "▾" : "▸"}`;
  return {
    title: `${mark} ${shortened(name, 21 - 2 * depth)}`,
    hint: `${shortened(name, 100)}: ${formatCount(rows.length)} tasks, ${formatSeconds(seconds)}`,
  };
}

/** The branches that are open at first: the steps, if these are few. */
function usuallyOpen(tasks) {
  return new Set(tasks.facts.steps.length <= MAX_OPEN ? tasks.facts.steps.map((_, at) => `${at}`) : []);
}

/** Steps with their rows in the order in which they began, the task runs of none last. */
function stepsInOrder(tasks, rows) {
  const none = tasks.facts.steps.length - 1;
  const groups = [...groupsOf(rows, (row) => tasks.steps[row])];
  return groups.sort(
    ([one, its], [other, others]) =>
      (one === none) - (other === none) || tasks.starts[its[0]] - tasks.starts[others[0]],
  );
}

/** Groups of rows by code, those that took the most time first. */
function grouped(tasks, rows, code) {
  const groups = [...groupsOf(rows, code)].map(([key, own]) => [key, own, secondsOf(tasks, own)]);
  return groups.sort((one, other) => other[2] - one[2]);
}

/** Rows by code, in their order. */
function groupsOf(rows, code) {
  const sizes = new Map();
  for (const row of rows) sizes.set(code(row), (sizes.get(code(row)) ?? 0) + 1);
  const groups = new Map();
  const filled = new Map();
  for (const [key, size] of sizes) {
    groups.set(key, new Uint32Array(size));
    filled.set(key, 0);
  }
  for (const row of rows) {
    const key = code(row);
    const at = filled.get(key);
    groups.get(key)[at] = row;
    filled.set(key, at + 1);
  }
  return groups;
}

function secondsOf(tasks, rows) {
  let seconds = 0;
  for (const row of rows) seconds += tasks.durations[row];
  return seconds;
}

function rowsByStart(tasks) {
  tasks.inOrder ??= ascending(tasks.starts);
  return tasks.inOrder;
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
