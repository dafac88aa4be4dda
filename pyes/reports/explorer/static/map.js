// The map: all individuals as points, and the path of the center above them, in one canvas (WebGL): without a graphics
// card a browser takes longer to lay one canvas over another than to draw 20,000 points.
// Points are drawn in a random order, so that while the map is moved the first of them stand for all: as many as the
// machine draws at full pace. At rest all are drawn.

const VIRIDIS = ['#440154', '#482777', '#3f4a8a', '#31678e', '#26838f', '#1f9d8a', '#6cce5a', '#b6de2b', '#fee825'];
const FAILED = [153, 153, 153];
const STEPS = 256; // colors; the first is that of members that failed
const REST = 150; // milliseconds after which the map counts as at rest
const FAST = 28, SLOW = 33; // milliseconds of a frame below which more points are drawn while moving, above which fewer
const SEGMENTS = 2000; // of the path of the center, of which the whole of a long run is not seen
const CLICK = 5, NEAR = 10; // pixels that a click may move, and that it may be away from a point
const VERTEX = `
attribute vec2 place; attribute float shade; attribute float generation;
uniform vec2 middle; uniform vec2 scale; uniform float size; uniform float last;
varying float tone;
void main() {
  gl_Position = generation > last ? vec4(2.0, 2.0, 0.0, 1.0) : vec4((place - middle) * scale, 0.0, 1.0);
  gl_PointSize = size;
  tone = shade;
}`;
const FRAGMENT = `
precision mediump float;
uniform sampler2D palette; uniform vec3 rim; uniform float inner;
varying float tone;
void main() {
  float away = length(gl_PointCoord - 0.5);
  if (away > 0.5) discard;
  gl_FragColor = vec4(mix(texture2D(palette, vec2(tone, 0.5)).rgb, rim, away > inner ? 0.5 : 0.0), 1.0);
}`;
const SHAPE_VERTEX = `
attribute vec2 place; attribute vec2 edge; attribute vec4 color;
uniform vec2 size;
varying vec2 side; varying vec4 tint;
void main() {
  gl_Position = vec4((2.0 * place / size - 1.0) * vec2(1.0, -1.0), 0.0, 1.0);
  side = edge;
  tint = color;
}`;
const SHAPE_FRAGMENT = `
precision mediump float;
varying vec2 side; varying vec4 tint;
void main() {
  gl_FragColor = vec4(tint.rgb, tint.a * clamp(side.y + 0.5 - abs(side.x), 0.0, 1.0));
}`;

const WHITE = [1, 1, 1, 0.9], DARK = [0.13, 0.13, 0.13, 1], MARK = [0.84, 0.37, 0, 1];
const WHOLE = { x: 0, y: 0, zoom: 1 }; // the view of the whole map
const CORNERS = 20; // of what is drawn as a circle

export class PlaneMap {
  // `picked` is called with the index of the individual that is clicked.
  constructor(canvas, picked) {
    [this.canvas, this.picked] = [canvas, picked];
    this.gl = canvas.getContext('webgl', { antialias: false });
    if (!this.gl) throw new Error('this browser has no WebGL, which the map needs');
    this.prepare();
    // One end of the palette is like the page in the light, the other in the dark: points have a rim of the text's color.
    this.rim = rgb(getComputedStyle(document.documentElement).getPropertyValue('--text').trim()).map((value) => value / 255);
    this.last = Infinity;
    this.some = 20000; // points drawn while moving
    this.moved = -Infinity;
    this.whole();
    this.empty();
    this.listen();
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  // Makes what the graphics card is to have.
  prepare() {
    const { gl } = this, program = this.program = programOf(gl, VERTEX, FRAGMENT);
    this.shapes = new Shapes(gl);
    paint(gl);
    // Asked for once: each question waits for the graphics process.
    this.attributes = [['place', 2], ['shade', 1], ['generation', 1]].map(([name, size]) => [name, size, gl.getAttribLocation(program, name)]);
    this.uniforms = Object.fromEntries(['middle', 'scale', 'size', 'last', 'rim', 'inner'].map((name) => [name, gl.getUniformLocation(program, name)]));
    this.buffers = Object.fromEntries(['place', 'shade', 'generation'].map((name) => [name, gl.createBuffer()]));
  }

  // The graphics card has lost all, as after a pause of the machine.
  restore() {
    this.prepare();
    if (!this.count) return;
    this.show(this.columns, false);
    this.color(this.by);
  }

  // Shows nothing.
  empty() {
    [this.count, this.path, this.selected] = [0, null, undefined];
    this.draw();
  }

  // Takes whole columns (x, y, generation, ... and path_x, path_y); `fresh` if the plane is another one.
  show(columns, fresh) {
    this.columns = columns;
    this.count = columns.x.length;
    this.order = shuffled(this.count);
    const places = new Float32Array(2 * this.count);
    this.order.forEach((index, k) => places.set([columns.x[index], columns.y[index]], 2 * k));
    this.enframe(frameOf(columns), fresh);
    const { x, y, half } = this.frame; // numbers near 1 for the shader, whose floats may be short
    for (let k = 0; k < this.count; k++) {
      places[2 * k] = (places[2 * k] - x) / half;
      places[2 * k + 1] = (places[2 * k + 1] - y) / half;
    }
    this.places = places;
    this.path = Array.from(columns.path_x, (value, g) => [(value - x) / half, (columns.path_y[g] - y) / half]);
    this.fill('place', places);
    this.fill('generation', Float32Array.from(this.order, (index) => columns.generation[index]));
  }

  // Takes another frame; a part of the map that the user looks at stays where it is.
  enframe(frame, fresh) {
    const { frame: before, view } = this;
    this.frame = frame;
    if (fresh || Object.keys(WHOLE).every((key) => view[key] === WHOLE[key])) return this.whole();
    view.x = (before.x + view.x * before.half - frame.x) / frame.half;
    view.y = (before.y + view.y * before.half - frame.y) / frame.half;
    view.zoom *= frame.half / before.half;
  }

  // Colors by a column; returns the least and the greatest value that have colors of their own, or null without any.
  color(by) {
    this.by = by;
    const values = this.columns[by];
    const ends = bounds(values, by === 'generation' ? [0, 1] : [0.02, 0.98]), [least, most] = ends ?? [0, 1];
    const span = most - least || 1;
    const step = (value) => 1 + Math.round(Math.min(1, Math.max(0, (value - least) / span)) * (STEPS - 2));
    this.fill('shade', Float32Array.from(this.order, (index) => ((Number.isFinite(values[index]) ? step(values[index]) : 0) + 0.5) / STEPS));
    this.draw();
    return ends;
  }

  // Hides all individuals of later generations.
  upTo(generation) {
    this.last = generation;
    this.move();
  }

  select(index) {
    this.selected = index;
    this.draw();
  }

  // Shows the whole map.
  whole() {
    this.view = { ...WHOLE };
    this.draw();
  }

  fill(name, values) {
    const { gl } = this;
    gl.bindBuffer(gl.ARRAY_BUFFER, this.buffers[name]);
    gl.bufferData(gl.ARRAY_BUFFER, values, gl.STATIC_DRAW);
  }

  // --- drawing

  // Draws at the next frame, and again with all points once the map is at rest.
  move() {
    this.moved = performance.now();
    this.draw();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.draw(), REST + 10);
  }

  draw() {
    this.asked ??= requestAnimationFrame((now) => {
      this.asked = null;
      this.drawNow(now);
    });
  }

  drawNow(now) {
    const moving = performance.now() - this.moved < REST;
    if (moving && this.drawn) {
      const spent = now - this.drawn;
      if (spent < FAST) this.some *= 1.25;
      else if (spent > SLOW && spent < 2000) this.some *= Math.max(0.5, FAST / spent);
      this.some = Math.min(Math.max(this.some, 1000), Math.max(this.count, 1000));
    }
    this.drawn = moving ? now : null;
    this.drawPoints(moving ? Math.min(this.count, Math.floor(this.some)) : this.count);
    this.drawPath();
  }

  drawPoints(count) {
    const { gl, canvas, uniforms, view } = this;
    const ratio = fitted(canvas), { width, height } = canvas;
    gl.viewport(0, 0, width, height);
    gl.clear(gl.COLOR_BUFFER_BIT);
    if (!count) return;
    gl.useProgram(this.program);
    gl.disable(gl.BLEND);
    for (const [name, size, location] of this.attributes) {
      gl.bindBuffer(gl.ARRAY_BUFFER, this.buffers[name]);
      gl.enableVertexAttribArray(location);
      gl.vertexAttribPointer(location, size, gl.FLOAT, false, 0, 0);
    }
    const least = Math.min(width, height), size = this.pointSize();
    gl.uniform2f(uniforms.middle, view.x, view.y);
    gl.uniform2f(uniforms.scale, view.zoom * least / width, view.zoom * least / height);
    gl.uniform1f(uniforms.size, ratio * size);
    gl.uniform3f(uniforms.rim, ...this.rim);
    gl.uniform1f(uniforms.inner, 0.5 - Math.min(1, size / 6) / size);
    gl.uniform1f(uniforms.last, Math.min(this.last, 1e9));
    gl.drawArrays(gl.POINTS, 0, count);
  }

  // Pixels: smaller where there are many, larger when zoomed in.
  pointSize() {
    return Math.min(12, Math.max(2.5, Math.min(7, 500 / Math.sqrt(this.count))) * Math.max(1, this.view.zoom) ** 0.35);
  }

  drawPath() {
    const { canvas, path, shapes } = this;
    if (!path) return;
    const shown = path.slice(0, this.last + 2), stride = Math.ceil(path.length / SEGMENTS);
    const places = shown.filter((_, i) => i % stride === 0 || i === shown.length - 1).map((place) => this.pixel(...place));
    for (const [color, width] of [[WHITE, 3.5], [DARK, 1.5]]) places.forEach((place, i) => i && shapes.line(places[i - 1], place, width, color));
    shapes.mark(places[0], 4, MARK);
    shapes.mark(places[places.length - 1], 6, MARK);
    if (this.selected !== undefined && this.selected < this.count) shapes.ring(this.pixel(...this.placeOf(this.selected)), 7, MARK);
    shapes.draw(canvas.clientWidth, canvas.clientHeight);
  }

  placeOf(index) {
    const { x, y, half } = this.frame;
    return [(this.columns.x[index] - x) / half, (this.columns.y[index] - y) / half];
  }

  // Pixels of the canvas for one unit of the map.
  unit() {
    return this.view.zoom * Math.min(this.canvas.clientWidth, this.canvas.clientHeight) / 2;
  }

  pixel(x, y) {
    const { canvas, view } = this, unit = this.unit();
    return [canvas.clientWidth / 2 + (x - view.x) * unit, canvas.clientHeight / 2 - (y - view.y) * unit];
  }

  // --- mouse, wheel and fingers

  listen() {
    const { canvas } = this, fingers = new Map();
    let travelled = 0;
    canvas.addEventListener('webglcontextlost', (event) => event.preventDefault()); // so that it comes back
    canvas.addEventListener('webglcontextrestored', () => this.restore());
    canvas.addEventListener('pointerdown', (event) => {
      canvas.setPointerCapture(event.pointerId);
      fingers.set(event.pointerId, [event.offsetX, event.offsetY]);
      if (fingers.size === 1) travelled = 0;
    });
    canvas.addEventListener('pointermove', (event) => {
      const before = fingers.get(event.pointerId);
      if (!before) return;
      const here = [event.offsetX, event.offsetY];
      travelled += Math.hypot(here[0] - before[0], here[1] - before[1]);
      const other = [...fingers.entries()].find(([id]) => id !== event.pointerId)?.[1];
      if (other) {
        const apart = ([x, y]) => Math.hypot(x - other[0], y - other[1]);
        this.zoomAt((here[0] + other[0]) / 2, (here[1] + other[1]) / 2, apart(here) / Math.max(apart(before), 1));
      } else {
        this.view.x -= (here[0] - before[0]) / this.unit();
        this.view.y += (here[1] - before[1]) / this.unit();
        this.move();
      }
      fingers.set(event.pointerId, here);
    });
    const lifted = (event) => {
      const clicked = fingers.delete(event.pointerId) && event.type === 'pointerup' && !fingers.size && travelled < CLICK;
      const found = clicked ? this.nearest(event.offsetX, event.offsetY) : -1;
      if (found >= 0) this.picked(found);
    };
    canvas.addEventListener('pointerup', lifted);
    canvas.addEventListener('pointercancel', lifted);
    canvas.addEventListener('dblclick', () => this.whole());
    canvas.addEventListener('wheel', (event) => {
      event.preventDefault();
      this.zoomAt(event.offsetX, event.offsetY, Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)));
    }, { passive: false });
  }

  zoomAt(px, py, factor) {
    const { canvas, view } = this, before = this.unit();
    view.zoom = Math.min(1e4, Math.max(0.2, view.zoom * factor));
    const [dx, dy] = [px - canvas.clientWidth / 2, canvas.clientHeight / 2 - py], change = 1 / before - 1 / this.unit();
    view.x += dx * change;
    view.y += dy * change;
    this.move();
  }

  // The index of the shown individual nearest to a pixel, or -1.
  nearest(px, py) {
    const { canvas, view, places, columns, order } = this, unit = this.unit();
    const x = view.x + (px - canvas.clientWidth / 2) / unit, y = view.y + (canvas.clientHeight / 2 - py) / unit;
    let best = -1, least = (NEAR / unit) ** 2;
    for (let k = 0; k < this.count; k++) {
      const away = (places[2 * k] - x) ** 2 + (places[2 * k + 1] - y) ** 2;
      if (away < least && columns.generation[order[k]] <= this.last) [best, least] = [order[k], away];
    }
    return best;
  }
}

// Gives a canvas a pixel for each of the screen's; returns how many of these a unit of CSS has.
function fitted(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight].map((length) => Math.round(length * ratio));
  if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
  return ratio;
}

// Lines and circles with soft edges, at places in pixels. What is added is drawn once.
class Shapes {
  constructor(gl) {
    this.gl = gl;
    this.program = programOf(gl, SHAPE_VERTEX, SHAPE_FRAGMENT);
    this.attributes = ['place', 'edge', 'color'].map((name) => gl.getAttribLocation(this.program, name));
    this.size = gl.getUniformLocation(this.program, 'size');
    this.buffer = gl.createBuffer();
    this.values = [];
  }

  // `edge` is how far from the middle of the shape a corner is, `half` where the shape ends.
  corner(x, y, edge, half, color) {
    this.values.push(x, y, edge, half, ...color);
  }

  line([ax, ay], [bx, by], width, color) {
    const half = width / 2, out = half + 1, long = Math.hypot(bx - ax, by - ay) || 1;
    const [nx, ny] = [out * (ay - by) / long, out * (bx - ax) / long];
    for (const [x, y, side] of [[ax, ay, 1], [ax, ay, -1], [bx, by, 1], [bx, by, 1], [ax, ay, -1], [bx, by, -1]]) {
      this.corner(x + side * nx, y + side * ny, side * out, half, color);
    }
  }

  disc([x, y], radius, color) {
    const out = radius + 1, rim = circle([x, y], out);
    for (let k = 0; k < CORNERS; k++) {
      this.corner(x, y, 0, radius, color);
      for (const [px, py] of [rim[k], rim[k + 1]]) this.corner(px, py, out, radius, color);
    }
  }

  ring(center, radius, color) {
    const rim = circle(center, radius);
    for (let k = 0; k < CORNERS; k++) this.line(rim[k], rim[k + 1], 2, color);
  }

  mark(center, radius, color) {
    this.disc(center, radius + 1, WHITE);
    this.disc(center, radius - 1, color);
  }

  draw(width, height) {
    const { gl, values } = this;
    gl.useProgram(this.program);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA);
    gl.bindBuffer(gl.ARRAY_BUFFER, this.buffer);
    gl.bufferData(gl.ARRAY_BUFFER, new Float32Array(values), gl.DYNAMIC_DRAW);
    this.attributes.forEach((location, k) => {
      gl.enableVertexAttribArray(location);
      gl.vertexAttribPointer(location, k < 2 ? 2 : 4, gl.FLOAT, false, 32, 8 * k);
    });
    gl.uniform2f(this.size, width, height);
    gl.drawArrays(gl.TRIANGLES, 0, values.length / 8);
    this.values = [];
  }
}

function circle([x, y], radius) {
  return Array.from({ length: CORNERS + 1 }, (_, k) => 2 * Math.PI * k / CORNERS).map((turn) => [x + radius * Math.cos(turn), y + radius * Math.sin(turn)]);
}

function programOf(gl, vertex, fragment) {
  const program = gl.createProgram();
  for (const [kind, source] of [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]]) {
    const shader = gl.createShader(kind);
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    gl.attachShader(program, shader);
  }
  gl.linkProgram(program);
  return program;
}

// Makes the palette the texture that shaders see.
function paint(gl) {
  gl.bindTexture(gl.TEXTURE_2D, gl.createTexture());
  gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGB, STEPS, 1, 0, gl.RGB, gl.UNSIGNED_BYTE, palette());
  for (const [key, value] of [['MIN_FILTER', 'NEAREST'], ['MAG_FILTER', 'NEAREST'], ['WRAP_S', 'CLAMP_TO_EDGE'], ['WRAP_T', 'CLAMP_TO_EDGE']]) {
    gl.texParameteri(gl.TEXTURE_2D, gl[`TEXTURE_${key}`], gl[value]);
  }
}

function palette() {
  const colors = VIRIDIS.map(rgb);
  const shades = Array.from({ length: STEPS - 1 }, (_, i) => {
    const place = i / (STEPS - 2) * (colors.length - 1), k = Math.min(Math.floor(place), colors.length - 2);
    return colors[k].map((value, c) => Math.round(value + (place - k) * (colors[k + 1][c] - value)));
  });
  return Uint8Array.from([FAILED, ...shades].flat());
}

function rgb(text) {
  return [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16));
}

// The numbers below n in a random order, the same each time.
function shuffled(n) {
  const order = Uint32Array.from({ length: n }, (_, i) => i);
  let state = 1;
  for (let i = n - 1; i > 0; i--) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    const j = Math.floor(state / 2 ** 32 * (i + 1));
    [order[i], order[j]] = [order[j], order[i]];
  }
  return order;
}

// The middle of all points and half of their greatest extent: both axes have one scale, since distances mean something.
function frameOf({ x, y, path_x: px, path_y: py }) {
  const [left, right] = extent(x, px), [low, high] = extent(y, py);
  return { x: (left + right) / 2, y: (low + high) / 2, half: Math.max(right - left, high - low) / 1.9 || 1 };
}

function extent(...arrays) {
  let least = Infinity, most = -Infinity;
  for (const array of arrays) {
    for (const value of array) {
      if (value < least) least = value;
      if (value > most) most = value;
    }
  }
  return [least, most];
}

function bounds(values, shares) {
  const finite = values.filter(Number.isFinite).sort();
  return finite.length ? shares.map((share) => finite[Math.round(share * (finite.length - 1))]) : null;
}
