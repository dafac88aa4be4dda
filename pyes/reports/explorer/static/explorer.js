// The page: asks the server, and hands what it says to the map, the charts and the cards.
import { clear, drawDistribution, drawMetrics, drawReturns, short } from './charts.js';
import { PlaneMap } from './map.js';

const POLL = 2000; // milliseconds between questions for the state of runs
const LEFT_OUT = 5; // runs that are named below the curves that lack them
const $ = (id) => document.getElementById(id);
const token = new URLSearchParams(location.search).get('token');
const map = madeMap();

let run = 0; // number of the shown run
let turn = 0; // how often another one was chosen
let states = [];
let lost = ''; // why the states are not known
let columns = null; // of all its individuals
let told = {}; // what was last said of its map
let starts = []; // index of the first member of each generation
let chosen = null; // the shown individual

function madeMap() {
  try {
    return new PlaneMap($('points'), (index) => chooseIndex(index));
  } catch (error) {
    $('wait').textContent = error.message;
    return null;
  }
}

function address(path, query = {}) {
  return `${path}?${new URLSearchParams({ ...query, token })}`;
}

async function ask(path, query) {
  const answer = await fetch(address(path, query));
  if (answer.ok) return answer;
  const text = await answer.text();
  let said = text;
  try { said = JSON.parse(text).error; } catch { /* plain text */ }
  throw Object.assign(new Error(said), { status: answer.status });
}

// --- the state of runs

async function poll() {
  if (document.hidden) {
    document.addEventListener('visibilitychange', poll, { once: true });
    return;
  }
  try {
    states = await (await ask('api/runs')).json();
    lost = '';
    showStates();
    parts.forEach(refresh);
  } catch (error) {
    lost = worded(error);
  }
  showProblem();
  setTimeout(poll, POLL);
}

// What is asked for anew when it depends on something else than when it was last shown, each at its own pace.
const parts = [
  { show: showCurves, of: () => JSON.stringify([$('x').value, states]) },
  { show: showDetails, of: () => JSON.stringify([$('x').value, states[run], states.length]) },
  { show: showPoints, of: () => JSON.stringify(states[run]) },
];

// Shows a part as it is now, unless it is being asked for already; one that fails is tried again at the next poll.
async function refresh(part) {
  const [asked, now] = [turn, part.of()];
  if (part.asked || part.shown === now) return;
  part.asked = true;
  try {
    await part.show();
    if (asked === turn) [part.shown, part.error] = [now, ''];
  } catch (error) {
    if (asked === turn) part.error = worded(error);
  }
  part.asked = false;
  showProblem();
  if (asked !== turn || part.of() !== now) refresh(part);
}

function worded(error) {
  return error instanceof TypeError ? 'pyes explore has ended or cannot be reached; start it again' : error.message;
}

function showProblem() {
  const text = [lost, states[run]?.error, ...parts.map((part) => part.error)].find(Boolean);
  $('problem').hidden = !text;
  $('problem').textContent = text || '';
}

function showStates() {
  if ($('run').options.length !== states.length) {
    $('run').replaceChildren(...states.map((each) => Object.assign(new Option(each.name, each.number), { title: each.path })));
    $('run').value = run;
  }
  const { running, generations, last } = states[run];
  const parts = [running ? 'training' : 'not running', `${generations.toLocaleString('en')} generations`];
  if (last) parts.push(`${short(last.timesteps)} timesteps`, `${short(last.seconds)} s`);
  $('state').value = parts.join(' · ');
}

async function showCurves() {
  const curves = await (await ask('api/curves', { x: $('x').value })).json();
  if (curves.groups.length) drawReturns($('grid'), curves);
  const left = curves.left_out, more = left.length - LEFT_OUT;
  $('left_out').textContent = [...left.slice(0, LEFT_OUT).map((why) => `Left out: ${why}`), ...(more > 0 ? [`and ${more} more`] : [])].join('\n');
}

async function showDetails() {
  const asked = turn;
  const details = await (await ask(`api/runs/${run}`)).json();
  if (asked === turn) fillDetails(details);
}

function fillDetails({ metrics, settings, differences, nodes, log }) {
  if (metrics.generation && metrics.generation.length) drawMetrics($('grid'), metrics, $('x').value);
  const rows = Object.entries(settings).map(([key, value]) => row('td', [key, written(value)], differences.includes(key)));
  $('settings').replaceChildren(...rows);
  $('differs').textContent = differences.length ? `Different from other runs here: ${differences.join(', ')}.` : '';
  $('nodes').hidden = !nodes.length;
  if (nodes.length) $('nodes').querySelector('table').replaceChildren(row('th', Object.keys(nodes[0])), ...nodes.map((node) => row('td', Object.values(node).map((value) => (typeof value === 'number' ? short(value) : value)))));
  const bottom = $('log').scrollTop + $('log').clientHeight >= $('log').scrollHeight - 4;
  $('log').textContent = log;
  if (bottom) $('log').scrollTop = $('log').scrollHeight;
}

function written(value) {
  if (value === null) return '';
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}

function row(kind, texts, marked = false) {
  const line = document.createElement('tr');
  line.className = marked ? 'differs' : '';
  line.append(...texts.map((text) => Object.assign(document.createElement(kind), { textContent: text })));
  return line;
}

// --- the map

async function showPoints() {
  const asked = turn;
  if (!columns) wait('rebuilding all individuals …');
  try {
    const data = await (await ask(`api/runs/${run}/points`, { of: 0, first: told.generations ?? 0, fit: told.fit ?? 0 })).arrayBuffer();
    if (asked !== turn) return;
    take(data);
    wait('');
  } catch (error) {
    if (asked !== turn) return;
    // A run without a map may be so for good: it is asked for again when the run has changed.
    if (columns || error.status !== 404) throw error;
    wait(error.message);
  }
}

// Says why there is no map yet, where there can be one.
function wait(text) {
  if (map) $('wait').textContent = text;
}

function take(data) {
  const length = new DataView(data).getUint32(0, true);
  const said = JSON.parse(new TextDecoder().decode(new Uint8Array(data, 4, length)));
  let place = 4 + length;
  const fresh = !columns || said.fit !== told.fit || said.first === 0;
  if (!fresh && Object.keys(said.columns).some((name) => !(name in columns))) {
    told = {}; // behaviours are new in this run: all of it is asked for the next time
    return;
  }
  const grown = {};
  for (const [name, count] of Object.entries(said.columns)) {
    const Numbers = name === 'return' ? Float64Array : Float32Array; // differences of large returns count
    const values = new Numbers(data.slice(place, place + Numbers.BYTES_PER_ELEMENT * count));
    place += Numbers.BYTES_PER_ELEMENT * count;
    const before = fresh ? [] : (name.startsWith('path') ? columns[name].subarray(0, said.first) : columns[name]);
    grown[name] = new Numbers(before.length + count);
    grown[name].set(before);
    grown[name].set(values, before.length);
  }
  const followed = !columns || +$('slider').value >= +$('slider').max;
  [columns, told] = [grown, said];
  starts = [];
  columns.generation.forEach((generation, index) => { starts[generation] ??= index; });
  $('slider').max = said.generations - 1;
  if (followed) $('slider').value = said.generations - 1;
  offerColors();
  $('axes').textContent = `Principal components: ${said.shares.map((share) => `${(100 * share).toPrecision(2)} %`).join(' and ')} of the variance; ${columns.x.length.toLocaleString('en')} individuals. The line is the path of the center.`;
  drawDistribution($('grid'), columns);
  map?.show(columns, fresh);
  recolor();
  moveSlider();
  if (chosen) map?.select(indexOf(chosen.generation, chosen.member));
}

function offerColors() {
  const names = Object.keys(columns).filter((name) => !/^(x|y|path_.)$/.test(name));
  names.sort((a, b) => (b === 'return') - (a === 'return'));
  if (names.join() !== [...$('color').options].map((option) => option.value).join()) $('color').replaceChildren(...names.map((name) => new Option(name)));
}

function recolor() {
  if (!map || !columns) return;
  const ends = map.color($('color').value || 'return');
  $('scale').hidden = !ends;
  if (ends) [$('least').textContent, $('most').textContent] = ends.map(short);
}

function moveSlider() {
  const generation = +$('slider').value;
  $('generation').value = generation;
  if (columns) map?.upTo(generation);
}

// --- individuals

// The index of an individual; undefined if it is not on the map.
function indexOf(generation, member) {
  const index = starts[generation] + member;
  return columns?.generation[index] === generation ? index : undefined;
}

function chooseIndex(index) {
  if (!columns) return; // those of another run are on their way
  const generation = columns.generation[index];
  choose(generation, index - starts[generation]);
}

async function choose(generation, member) {
  [$('go_generation').value, $('go_member').value] = [generation, member];
  map?.select(indexOf(generation, member));
  chosen = { run, generation, member };
  const asked = chosen, card = cardOf(asked);
  $('shown').replaceChildren(card.element);
  try {
    const said = await (await ask(`api/runs/${run}/${generation}/${member}`)).json();
    card.fill(said);
    asked.said = said;
  } catch (error) {
    card.fail(error.message);
  }
}

function cardOf({ run: number, generation, member }) {
  const element = Object.assign(document.createElement('div'), { className: 'card' });
  const title = Object.assign(document.createElement('strong'), { textContent: `generation ${generation}, member ${member}` });
  const wait = Object.assign(document.createElement('p'), { className: 'note', textContent: 'playing …' });
  element.append(title, wait);
  const base = `api/runs/${number}/${generation}/${member}`;
  return {
    element,
    fail: (text) => { wait.textContent = text; wait.className = 'error'; },
    fill: (said) => {
      wait.remove();
      if (said.video) {
        const video = Object.assign(document.createElement('video'), { src: address(`${base}/video`), controls: true, autoplay: true, loop: true, muted: true, playsInline: true });
        element.append(video);
      } else if (said.why) {
        element.append(Object.assign(document.createElement('p'), { className: 'note', textContent: `No video: ${said.why}` }));
      }
      const facts = document.createElement('dl');
      const seeds = [said.seed].flat();
      for (const [name, value] of [['return', said.return ?? 'none: the member failed'], ['length', said.length], ['in the run', said.exact ? 'the same return and length' : `return ${said.recorded_return ?? 'none'}, length ${said.recorded_length}: not the same`], [seeds.length > 1 ? 'seeds' : 'seed', seeds.slice(0, 4).join(', ') + (seeds.length > 4 ? ' …' : '')]]) {
        facts.append(Object.assign(document.createElement('dt'), { textContent: name }), Object.assign(document.createElement('dd'), { textContent: value }));
      }
      const command = Object.assign(document.createElement('code'), { textContent: said.command });
      const bar = Object.assign(document.createElement('p'), { className: 'bar' });
      const policy = Object.assign(document.createElement('a'), { href: address(`${base}/policy`), textContent: 'policy as a file', download: '' });
      bar.append(button('pin', () => pin({ run: number, generation, member, said })), button('copy command', () => navigator.clipboard.writeText(said.command)), policy);
      element.append(facts, command, bar);
    },
  };
}

function button(text, pressed) {
  const made = Object.assign(document.createElement('button'), { textContent: text });
  made.addEventListener('click', pressed);
  return made;
}

function pin(individual) {
  const card = cardOf(individual);
  card.fill(individual.said);
  card.element.querySelector('.bar').firstChild.replaceWith(button('unpin', () => card.element.remove()));
  if (states.length > 1) card.element.firstChild.textContent = `${states[individual.run].name}: ${card.element.firstChild.textContent}`;
  $('pins').append(card.element);
}

// The members of a generation, the highest return first; those that failed last.
function ranked(generation) {
  if (starts[generation] === undefined) return [];
  const end = starts[generation + 1] ?? columns.generation.length;
  const value = (member) => { const found = columns.return[starts[generation] + member]; return Number.isNaN(found) ? -Infinity : found; };
  return Array.from({ length: end - starts[generation] }, (_, member) => member).sort((a, b) => value(b) - value(a));
}

function chooseBest(generation) {
  const [best] = ranked(generation);
  if (best !== undefined) choose(generation, best);
}

function step(by) {
  if (!chosen) return;
  const order = ranked(chosen.generation), place = order.indexOf(chosen.member) + by;
  if (place >= 0 && place < order.length) choose(chosen.generation, order[place]);
}

// --- what the user does

// Takes away what is of one run: that of another may not come.
function empty() {
  [columns, told, starts, chosen] = [null, {}, [], null];
  map?.empty();
  clear();
  fillDetails({ metrics: {}, settings: {}, differences: [], nodes: [], log: '' });
  for (const id of ['axes', 'generation']) $(id).textContent = '';
  wait('rebuilding all individuals …');
  $('scale').hidden = true;
  $('slider').max = 0;
  for (const part of parts) [part.shown, part.error] = [null, ''];
}

$('run').addEventListener('change', () => {
  run = +$('run').value;
  turn += 1;
  empty();
  showStates();
  parts.forEach(refresh);
  showProblem();
});
$('x').addEventListener('change', () => parts.forEach(refresh));
$('color').addEventListener('change', recolor);
for (const id of ['run', 'x', 'color']) $(id).addEventListener('change', () => $(id).blur()); // the keys are the page's again
$('slider').addEventListener('input', () => requestAnimationFrame(moveSlider));
$('whole').addEventListener('click', () => map?.whole());
$('best').addEventListener('click', () => chooseBest(+$('slider').value));
$('go').addEventListener('submit', (event) => {
  event.preventDefault();
  choose(+$('go_generation').value, +$('go_member').value);
});
addEventListener('keydown', (event) => {
  const slides = event.target.type === 'range' && /^Arrow(Left|Right)$/.test(event.key); // by the browser
  if (event.ctrlKey || event.metaKey || event.altKey || slides || event.target.matches('input:not([type=range]), select, textarea, video')) return;
  const slide = (by) => { $('slider').value = +$('slider').value + by; moveSlider(); };
  const actions = {
    ArrowLeft: () => slide(-1), ArrowRight: () => slide(1), ArrowUp: () => step(-1), ArrowDown: () => step(1),
    b: () => chooseBest(+$('slider').value), p: () => chosen && chosen.said && pin(chosen), 0: () => map?.whole(),
  };
  if (actions[event.key]) {
    event.preventDefault();
    actions[event.key]();
  }
});

poll();
