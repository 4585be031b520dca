/* trace_page_timeline.js - memory over time: what is lent in bands, what the pool has as a line.
 *
 * A column of pixels may stand for many events: it shows the moment among them when most was lent,
 * so that no peak is lost.
 * SPDX-License-Identifier: Apache-2.0 */
'use strict';

function makeTimeline(onMoment) {
  const {events, count} = Model;
  const MARGIN = {left: 66, right: 14, top: 20, bottom: 24};
  const plot = document.getElementById('plot');
  const canvas = document.getElementById('plot-canvas');
  const cursor = document.getElementById('plot-cursor');
  const overview = document.getElementById('overview');
  const length = count > 0 ? Math.max(events.time[count - 1], 1) : 1;
  const view = {by: 'client', axis: 'time', from: 0, to: 1, moment: count};
  let sums = null;
  let columns = null; /* what is on the canvas now */
  let outline = null; /* lent bytes along the overview */

  /* ---- positions: x is a time or a number of events ---- */

  function whole() {
    const end = view.axis === 'time' ? length : Math.max(count, 1);
    return {from: -0.012 * end, to: 1.012 * end};
  }

  function xOfEvent(i) {
    return view.axis === 'time' ? events.time[i] : i + 1;
  }

  function xOfMoment(moment) {
    return moment === 0 ? whole().from / 2 : xOfEvent(moment - 1);
  }

  function momentOfX(x) {
    return view.axis === 'time' ? Model.momentOfTime(x) : Math.min(count, Math.max(0, Math.floor(x)));
  }

  /* ---- columns ---- */

  /* What to draw from x `from` to x `to` in `width` columns. */
  function gather(from, to, width) {
    const {groups} = sums;
    const out = {width, from, to, had: new Float64Array(width), asked: new Float64Array(width),
      first: new Uint32Array(width + 1), bands: groups.names.map(() => new Float64Array(width)),
      lent: new Float64Array(width), most: 0};
    let at = momentOfX(from);
    const state = sums.at(at);
    let lent = sums.lent(state);
    const best = state.slice();
    for (let c = 0; c < width; c++) {
      const end = from + (to - from) * (c + 1) / width;
      let bestLent = lent;
      let had = Model.totalAt(at);
      best.set(state);
      out.first[c] = at;
      while (at < count && xOfEvent(at) < end) {
        if (sums.apply(state, at)) {
          lent = sums.lent(state);
          if (lent > bestLent) {
            bestLent = lent;
            best.set(state);
          }
        }
        had = Math.max(had, events.total[at]);
        at++;
      }
      for (let k = 0; k < groups.names.length; k++) {
        out.bands[k][c] = best[k];
      }
      out.lent[c] = bestLent;
      out.asked[c] = sums.asked(best);
      out.had[c] = had;
      out.most = Math.max(out.most, had, bestLent);
    }
    out.first[width] = at;
    return out;
  }

  /* ---- drawing ---- */

  /* Bytes from line to line of the grid: a power of two, at most `lines` lines. */
  function gridStep(most, lines) {
    let step = 1;
    while (most / step > lines) {
      step *= 2;
    }
    return step;
  }

  function timeStep(span, lines) {
    const rough = span / lines;
    const scale = 10 ** Math.floor(Math.log10(rough));
    return scale * ([1, 2, 5, 10].find((factor) => factor * scale >= rough) ?? 10);
  }

  function drawGrid(context, box, most, step) {
    const is = Paint.colours();
    context.font = Paint.font(11.5);
    context.lineWidth = 1;
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    for (let value = 0; value <= most; value += step) {
      const y = Math.round(box.y(value)) + 0.5;
      context.strokeStyle = value === 0 ? is.line : is.grid;
      context.beginPath();
      context.moveTo(box.left, y);
      context.lineTo(box.right, y);
      context.stroke();
      context.fillStyle = is.soft;
      context.fillText(Text.roundBytes(value), box.left - 9, y);
    }
    context.textAlign = 'center';
    context.textBaseline = 'top';
    const along = Math.max(view.axis === 'time' ? 0 : 1, timeStep(view.to - view.from, Math.max(2, (box.right - box.left) / 120)));
    for (let x = Math.ceil(view.from / along) * along; x <= view.to; x += along) {
      if (x >= 0 && x <= whole().to) {
        const label = Math.abs(x) < along / 2 ? '0' : view.axis === 'time' ? Text.time(x, along) : Text.count(Math.round(x));
        context.fillText(label, Math.min(Math.max(box.x(x), box.left + 14), box.right - 20), box.bottom + 8);
      }
    }
  }

  /* Rectangles under `upper` and over `lower`; columns of equal height in one piece. */
  function drawBand(context, box, lower, upper, colour) {
    context.fillStyle = colour;
    for (let c = 0, next; c < columns.width; c = next) {
      next = c + 1;
      while (next < columns.width && lower[next] === lower[c] && upper[next] === upper[c]) {
        next++;
      }
      const top = box.y(upper[c]);
      const height = box.y(lower[c]) - top;
      if (height > 0) {
        const gap = height > 4 ? 0.8 : 0; /* the card shows between two bands */
        context.fillRect(box.column(c), top + gap, box.column(next) - box.column(c), height - gap);
      }
    }
  }

  /* Writes a band's name where it is thickest, if it fits there. */
  function drawName(context, box, lower, upper, name, colour) {
    let at = 0;
    for (let c = 1; c < columns.width; c++) {
      if (upper[c] - lower[c] > upper[at] - lower[at]) {
        at = c;
      }
    }
    context.font = Paint.font(12, 600);
    const wide = context.measureText(name).width + 12;
    const reach = Math.ceil(wide / 2 / (box.column(1) - box.column(0)));
    const centre = Math.min(Math.max(at, reach), columns.width - 1 - reach);
    if (centre < reach) {
      return;
    }
    let floor = 0;
    let roof = Infinity;
    for (let c = centre - reach; c <= centre + reach; c++) {
      floor = Math.max(floor, lower[c]);
      roof = Math.min(roof, upper[c]);
    }
    if (box.y(floor) - box.y(roof) >= 15) {
      context.fillStyle = Paint.inkOn(colour);
      context.textAlign = 'center';
      context.textBaseline = 'middle';
      context.fillText(name, box.column(centre), (box.y(floor) + box.y(roof)) / 2);
    }
  }

  function drawBands(context, box) {
    const {groups} = sums;
    let lower = new Float64Array(columns.width);
    const drawn = [];
    for (let k = 0; k < groups.names.length; k++) {
      const upper = lower.map((value, c) => value + columns.bands[k][c]);
      drawBand(context, box, lower, upper, groups.colours[k]);
      drawn.push([lower, upper, groups.names[k], groups.colours[k]]);
      lower = upper;
    }
    for (const [below, above, name, colour] of drawn) {
      drawName(context, box, below, above, name, colour);
    }
  }

  function drawLine(context, box, values, colour, width, dashes) {
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.lineJoin = 'round';
    context.setLineDash(dashes);
    context.beginPath();
    for (let c = 0; c < columns.width; c++) {
      const y = box.y(values[c]);
      if (c === 0) {
        context.moveTo(box.column(0), y);
      } else if (values[c] !== values[c - 1]) {
        context.lineTo(box.column(c), box.y(values[c - 1]));
        context.lineTo(box.column(c), y);
      }
    }
    context.lineTo(box.right, box.y(values[columns.width - 1]));
    context.stroke();
    context.setLineDash([]);
  }

  function triangle(context, x, y, size) {
    context.beginPath();
    context.moveTo(x - size, y - size);
    context.lineTo(x + size, y - size);
    context.lineTo(x, y + size * 0.7);
    context.closePath();
    context.fill();
  }

  function drawFailures(context, box) {
    const is = Paint.colours();
    const places = new Set();
    for (const i of Model.failures) {
      const x = xOfEvent(i);
      if (x >= view.from && x <= view.to) {
        places.add(Math.round(box.x(x)));
      }
    }
    context.fillStyle = is.alarm;
    context.strokeStyle = is.alarm;
    context.lineWidth = 1;
    for (const x of places) {
      context.setLineDash([2, 3]);
      context.beginPath();
      context.moveTo(x + 0.5, box.top);
      context.lineTo(x + 0.5, box.bottom);
      context.stroke();
      context.setLineDash([]);
      triangle(context, x + 0.5, box.top - 5, 5);
    }
    if (places.size === 1) {
      const [x] = places;
      const left = x < box.right - 110;
      context.font = Paint.font(11.5, 600);
      context.textAlign = left ? 'left' : 'right';
      context.textBaseline = 'middle';
      context.fillText('out of memory', x + (left ? 10 : -10), box.top - 7);
    }
  }

  function boxOf(fitted, most) {
    const left = MARGIN.left;
    const right = fitted.width - MARGIN.right;
    const top = MARGIN.top;
    const bottom = fitted.height - MARGIN.bottom;
    return {left, right, top, bottom,
      x: (x) => left + (x - view.from) / (view.to - view.from) * (right - left),
      y: (value) => bottom - value / most * (bottom - top),
      column: (c) => left + c / columns.width * (right - left)};
  }

  function draw() {
    const fitted = Paint.fit(canvas);
    const is = Paint.colours();
    const wide = Math.max(1, Math.round((fitted.width - MARGIN.left - MARGIN.right) * fitted.scale));
    columns = gather(view.from, view.to, wide);
    const {limit} = Model.about.stats;
    const near = limit !== null && limit < columns.most * 1.6;
    const step = gridStep(Math.max(near ? limit : 0, columns.most, 1), 6);
    const most = Math.max(columns.most * 1.03, near ? limit * 1.04 : 0, step);
    const box = boxOf(fitted, most);
    drawGrid(fitted.context, box, most, step);
    drawBands(fitted.context, box);
    drawLine(fitted.context, box, columns.asked, is.ink, 1, [1.5, 2.5]);
    drawLine(fitted.context, box, columns.had, is.ink, 1.6, []);
    if (near) {
      columns.limit = new Float64Array(columns.width).fill(limit);
      drawLine(fitted.context, box, columns.limit, is.alarm, 1, [7, 4]);
    }
    drawFailures(fitted.context, box);
    drawCursor(null);
    drawOverview();
  }

  function drawCursor(hover) {
    const {context, width, height} = Paint.fit(cursor);
    const box = boxOf({width, height}, 1);
    const is = Paint.colours();
    function line(x, colour, wide) {
      context.strokeStyle = colour;
      context.lineWidth = wide;
      context.beginPath();
      context.moveTo(Math.round(x) + 0.5, box.top - 2);
      context.lineTo(Math.round(x) + 0.5, box.bottom);
      context.stroke();
    }
    if (hover !== null) {
      line(hover, is.soft, 0.6);
    }
    const x = box.x(xOfMoment(view.moment));
    if (x >= box.left - 1 && x <= box.right + 1) {
      line(x, is.accent, 2);
      context.fillStyle = is.accent;
      context.beginPath();
      context.arc(Math.round(x) + 0.5, box.bottom, 4.5, 0, 2 * Math.PI);
      context.fill();
    }
  }

  function drawOverview() {
    const {context, width, height, scale} = Paint.fit(overview);
    const is = Paint.colours();
    const all = whole();
    const left = MARGIN.left;
    const right = width - MARGIN.right;
    const wide = Math.max(1, Math.round((right - left) * scale));
    if (outline === null || outline.width !== wide || outline.axis !== view.axis) {
      outline = {...gather(all.from, all.to, wide), axis: view.axis};
    }
    context.fillStyle = is.soft;
    context.globalAlpha = 0.35;
    for (let c = 0; c < wide; c++) {
      const tall = outline.lent[c] / Math.max(outline.most, 1) * (height - 4);
      context.fillRect(left + c / scale, height - tall, 1 / scale, tall);
    }
    context.globalAlpha = 1;
    const from = left + (view.from - all.from) / (all.to - all.from) * (right - left);
    const to = left + (view.to - all.from) / (all.to - all.from) * (right - left);
    if (to - from > right - left - 1) {
      return; /* all of it is shown */
    }
    context.strokeStyle = is.accent;
    context.lineWidth = 1.5;
    context.strokeRect(from + 0.75, 1.5, Math.max(3, to - from - 1.5), height - 3);
  }

  /* ---- moving ---- */

  /* Shows from x to x, within the whole and not narrower than a few events. */
  function show(from, to) {
    const all = whole();
    const least = (all.to - all.from) * 1e-7 + (view.axis === 'time' ? 100 : 4);
    const span = Math.min(Math.max(to - from, least), all.to - all.from);
    const middle = (from + to) / 2;
    view.from = Math.min(Math.max(middle - span / 2, all.from), all.to - span);
    view.to = view.from + span;
    draw();
  }

  function zoom(factor, x = null) {
    const here = xOfMoment(view.moment);
    const centre = x ?? (here >= view.from && here <= view.to ? here : (view.from + view.to) / 2);
    show(centre - (centre - view.from) * factor, centre + (view.to - centre) * factor);
  }

  function setMoment(moment) {
    view.moment = Math.min(count, Math.max(0, moment));
    const x = xOfMoment(view.moment);
    if (x < view.from || x > view.to) {
      show(x - (view.to - view.from) / 2, x + (view.to - view.from) / 2);
    }
    drawCursor(null);
    onMoment(view.moment);
  }

  /* ---- pointing ---- */

  function xOfPointer(event) {
    const box = canvas.getBoundingClientRect();
    const part = (event.clientX - box.left - MARGIN.left) / (box.width - MARGIN.left - MARGIN.right);
    return view.from + Math.min(1, Math.max(0, part)) * (view.to - view.from);
  }

  /* The event that a column is worth telling of: a failure, else the largest. */
  function eventAt(x) {
    const reach = (view.to - view.from) / columns.width * 4;
    let best = -1;
    let worth = -1;
    for (let i = momentOfX(x - reach); i < count && xOfEvent(i) <= x + reach; i++) {
      const near = 1 - Math.abs(xOfEvent(i) - x) / reach / 2;
      const size = (events.action[i] === ACTION.FAIL ? 1e15 : events.size[i] + 1) * near;
      if (size > worth) {
        worth = size;
        best = i;
      }
    }
    return best;
  }

  function hover(event) {
    const x = xOfPointer(event);
    const i = eventAt(x);
    const moment = i >= 0 ? i + 1 : momentOfX(x);
    const state = sums.at(moment);
    const box = canvas.getBoundingClientRect();
    drawCursor(event.clientX - box.left);
    Tip.show(event.clientX, event.clientY, i >= 0 ? Describe.event(i) : 'No event here', [
      ...(i >= 0 ? Describe.rows(i) : []),
      ['lent then', `${Text.bytes(sums.lent(state))}, ${Text.bytes(sums.asked(state))} asked for`],
      ['pool has', Text.bytes(Model.totalAt(moment))],
    ]);
  }

  function leave() {
    Tip.hide();
    drawCursor(null);
  }

  let drag = null; /* {from, zooming} while the button is down */
  plot.addEventListener('pointerdown', (event) => {
    if (event.button === 0) {
      drag = {from: xOfPointer(event), zooming: event.shiftKey};
      plot.setPointerCapture(event.pointerId);
      if (!drag.zooming) {
        setMoment(momentOfX(drag.from));
      }
    }
  });
  plot.addEventListener('pointermove', (event) => {
    if (drag !== null && !drag.zooming) {
      setMoment(momentOfX(xOfPointer(event)));
    }
    hover(event);
  });
  plot.addEventListener('pointerup', (event) => {
    if (drag !== null && drag.zooming) {
      const to = xOfPointer(event);
      if (Math.abs(to - drag.from) > (view.to - view.from) * 0.005) {
        show(Math.min(drag.from, to), Math.max(drag.from, to));
      }
    }
    drag = null;
  });
  plot.addEventListener('pointercancel', () => { drag = null; });
  plot.addEventListener('pointerleave', leave);
  plot.addEventListener('wheel', (event) => {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      zoom(Math.exp(event.deltaY * 0.004), xOfPointer(event));
    }
  }, {passive: false});

  let panning = false;
  function pan(event) {
    const box = overview.getBoundingClientRect();
    const part = (event.clientX - box.left - MARGIN.left) / (box.width - MARGIN.left - MARGIN.right);
    const all = whole();
    const x = all.from + part * (all.to - all.from);
    show(x - (view.to - view.from) / 2, x + (view.to - view.from) / 2);
  }
  overview.addEventListener('pointerdown', (event) => {
    panning = true;
    overview.setPointerCapture(event.pointerId);
    pan(event);
  });
  overview.addEventListener('pointermove', (event) => panning && pan(event));
  overview.addEventListener('pointerup', () => { panning = false; });

  /* ---- keys ---- */

  function nextFailure() {
    return (Model.failures.find((i) => i + 1 > view.moment) ?? Model.failures[0] ?? view.moment - 1) + 1;
  }

  const stride = () => Math.max(1, Math.round((momentOfX(view.to) - momentOfX(view.from)) / 50));
  const KEYS = {
    ArrowLeft: (event) => setMoment(view.moment - (event.shiftKey ? stride() : 1)),
    ArrowRight: (event) => setMoment(view.moment + (event.shiftKey ? stride() : 1)),
    PageDown: () => setMoment(view.moment - stride()),
    PageUp: () => setMoment(view.moment + stride()),
    Home: () => setMoment(0),
    End: () => setMoment(count),
    '+': () => zoom(0.6),
    '=': () => zoom(0.6),
    '-': () => zoom(1 / 0.6),
    0: () => show(whole().from, whole().to),
    o: () => setMoment(nextFailure()),
  };
  plot.addEventListener('keydown', (event) => {
    const act = KEYS[event.key];
    if (act !== undefined && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      act(event);
    }
  });

  function setup(changes) {
    Object.assign(view, changes);
    outline = null;
    sums = makeSums(view.by);
    show(whole().from, whole().to);
  }

  return {setup, draw, zoom, setMoment, all: () => show(whole().from, whole().to),
    shares: () => sums.at(view.moment), groups: () => sums.groups, moment: () => view.moment};
}
