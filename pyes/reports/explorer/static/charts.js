// Curves: all runs in groups with bands, and the figures of one run by generation.

const COLORS = ['#0072b2', '#d55e00', '#009e73', '#cc79a7', '#e69f00', '#56b4e9', '#7f7f7f', '#b39b00'];
const HEIGHT = 220;
const ORDER = ['returns', 'training', 'distribution', 'steps', 'norms', 'length', 'speed'];
const charts = new Map();

// Draws what /api/curves has said: a line for each group of runs, a band where there are several.
export function drawReturns(grid, { x, groups }) {
  const xs = [...new Set(groups.flatMap((group) => [...(group.band ? group.band.x : []), ...group.runs.flatMap((run) => run.x)]))].sort((a, b) => a - b);
  const data = [xs], series = [{}], bands = [];
  groups.forEach((group, index) => {
    const color = COLORS[index % COLORS.length];
    const label = groups.length > 1 || group.band ? group.label : 'return';
    if (group.band) {
      const first = series.length;
      for (const [name, options] of [['line', { label: group.label || 'mean', stroke: color, width: 2 }],
        ['high', { label: 'most', stroke: 'transparent', points: { show: false } }],
        ['low', { label: 'least', stroke: 'transparent', points: { show: false } }]]) {
        series.push({ spanGaps: true, ...options });
        data.push(onto(xs, group.band.x, group.band[name]));
      }
      bands.push({ series: [first + 1, first + 2], fill: `${color}33` });
    }
    for (const run of group.runs) {
      series.push({ spanGaps: true, label: group.band || groups.length > 1 ? `${label} ${run.name}`.trim() : label, stroke: group.band ? `${color}88` : color, width: group.band ? 1 : 2 });
      data.push(onto(xs, run.x, run.y));
    }
  });
  const evaluated = groups.every((group) => group.evaluated);
  chart(grid, 'returns', evaluated ? 'return of the center (evaluations)' : 'return', x, data, series, bands);
}

// Draws the columns of one run's metrics over the same x.
export function drawMetrics(grid, metrics, x) {
  const xs = metrics[x], evaluations = metrics.eval_return_mean;
  // An evaluation is of the center after its row's update, that of the next generation.
  const centers = x === 'generation' ? xs.map((value) => value + 1) : xs;
  const all = [...new Set([...xs, ...centers.filter((_, index) => evaluations[index] !== null)])].sort((a, b) => a - b);
  const line = (name, label, color, more = {}) => [metrics[name], { label, stroke: color, spanGaps: true, width: 1.5, ...more }];
  const draw = (key, title, lines, bands = [], log = false, at = xs) => chart(
    grid, key, title, x, [at, ...lines.map(([values]) => values)], [{}, ...lines.map(([, series]) => series)], bands, log);
  draw('training', 'returns of the population', [
    line('return_max', 'most', 'transparent', { points: { show: false } }), line('return_min', 'least', 'transparent', { points: { show: false } }),
    line('return_mean', 'mean', COLORS[0]), line('eval_return_mean', 'center', COLORS[1], { width: 2 })]
    .map(([values, series]) => [onto(all, values === evaluations ? centers : xs, values), series]), [{ series: [1, 2], fill: `${COLORS[0]}22` }], false, all);
  draw('steps', 'sigma and learning rate', [line('sigma', 'sigma', COLORS[0]), line('learning_rate', 'learning rate', COLORS[1])], [], true);
  draw('norms', 'norms of theta and its gradient', [line('theta_norm', 'theta', COLORS[0]), line('gradient_norm', 'gradient', COLORS[1])], [], true);
  draw('length', 'mean length of episodes', [line('length_mean', 'timesteps', COLORS[2])]);
  draw('speed', 'timesteps a second', [line('steps_per_second', 'timesteps a second', COLORS[3])]);
}

// Draws how the returns of each generation are distributed, from the columns of the map.
export function drawDistribution(grid, columns) {
  const byGeneration = new Map();
  columns.generation.forEach((generation, index) => {
    const value = columns.return[index];
    if (!Number.isFinite(value)) return;
    if (!byGeneration.has(generation)) byGeneration.set(generation, []);
    byGeneration.get(generation).push(value);
  });
  const generations = [...byGeneration.keys()], sorted = [...byGeneration.values()].map((values) => Float64Array.from(values).sort());
  const shares = [0, 0.1, 0.25, 0.5, 0.75, 0.9, 1];
  const quantile = (values, share) => {
    const place = share * (values.length - 1), below = Math.floor(place), above = Math.ceil(place);
    return values[below] + (place - below) * (values[above] - values[below]);
  };
  const rows = shares.map((share) => sorted.map((values) => quantile(values, share)));
  const hidden = { stroke: 'transparent', points: { show: false } };
  const series = [{}, ...shares.map((share) => (share === 0.5 ? { label: 'median', stroke: COLORS[0], width: 2 } : { label: `${100 * share} %`, ...hidden }))];
  const bands = [[7, 1, '18'], [6, 2, '28'], [5, 3, '38']].map(([high, low, shade]) => ({ series: [high, low], fill: `${COLORS[0]}${shade}` }));
  chart(grid, 'distribution', 'distribution of returns by generation', 'generation', [generations, ...rows], series, bands);
}

// Removes the figures of one run.
export function clear() {
  for (const [key, { plot, box }] of charts) {
    if (key === 'returns') continue;
    plot.destroy();
    box.remove();
    charts.delete(key);
  }
}

function chart(grid, key, title, x, data, series, bands = [], log = false) {
  const logarithmic = log && positive(data);
  const shape = JSON.stringify([title, x, logarithmic, series.map(({ label }) => label), bands.length]);
  const known = charts.get(key);
  if (known && known.shape === shape) {
    setData(known.plot, data);
    return;
  }
  const box = known ? known.box : document.createElement('div');
  if (known) known.plot.destroy();
  box.className = 'chart';
  box.style.order = ORDER.indexOf(key);
  box.innerHTML = '<h3></h3>';
  box.firstChild.textContent = title;
  if (!known) grid.append(box);
  const style = getComputedStyle(document.documentElement);
  const axis = { stroke: style.getPropertyValue('--quiet'), grid: { stroke: style.getPropertyValue('--line'), width: 0.5 }, ticks: { show: false } };
  const shown = series.map((each, index) => ({ value: (_, value) => short(value), ...each, ...(index ? {} : { label: x }) }));
  const plot = new uPlot({
    width: box.clientWidth || 360, height: HEIGHT, series: shown, bands,
    scales: { x: { time: false }, y: logarithmic ? { distr: 3 } : {} },
    axes: [{ ...axis, values: ticks, label: x, labelSize: 16, size: 30 }, { ...axis, size: 62, values: ticks }],
    cursor: { points: { size: 5 }, hover: { skip: [null] } }, legend: { live: true },
  }, data, box);
  // Edges of bands are lines that nobody sees.
  box.querySelectorAll('.u-legend .u-series').forEach((line, index) => { line.hidden = series[index].stroke === 'transparent'; });
  charts.set(key, { plot, box, shape });
}

// Shows other data at all of its x, or at those that the user has zoomed to.
function setData(plot, data) {
  const { min, max } = plot.scales.x, xs = plot.data[0], zoomed = min > xs[0] || max < xs[xs.length - 1];
  plot.batch(() => {
    plot.setData(data);
    if (zoomed) plot.setScale('x', { min, max });
  });
}

function ticks(_, values) {
  return values.map((value) => (value === null ? '' : short(value)));
}

function positive(data) {
  return data.slice(1).every((values) => values.every((value) => value === null || value > 0));
}

function onto(xs, x, y) {
  const known = new Map(x.map((value, index) => [value, y[index]]));
  return xs.map((value) => known.get(value) ?? null);
}

export function short(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return '–';
  const size = Math.abs(value);
  if (size >= 1e6) return `${+(value / 1e6).toPrecision(4)} M`;
  if (size >= 1e4) return value.toLocaleString('en', { maximumFractionDigits: 0 });
  return `${+value.toPrecision(4)}`;
}

addEventListener('resize', () => charts.forEach(({ plot, box }) => plot.setSize({ width: box.clientWidth, height: HEIGHT })));
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => location.reload());
