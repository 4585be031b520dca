/* trace_page_pointer.js - the timeline under the pointer and the keys.
 * SPDX-License-Identifier: Apache-2.0 */
'use strict';

function listenTimeline(timeline) {
  const plot = document.getElementById('plot');
  listenPlot(timeline, plot, document.getElementById('plot-canvas'));
  listenOverview(timeline, document.getElementById('overview'));
  plot.addEventListener('keydown', (event) => {
    const act = timelineKeys(timeline)[event.key];
    if (act !== undefined && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      act(event);
    }
  });
}

/* The event that a place is worth telling of: a failure, else the largest nearby; -1 for none. */
function eventNear(timeline, x) {
  const {view} = timeline;
  const reach = (view.to - view.from) / timeline.width() * 4;
  let best = -1;
  let worth = -1;
  for (let i = Axis.momentAt(view, x - reach); i < Model.count && Axis.ofEvent(view, i) <= x + reach; i++) {
    const near = 1 - Math.abs(Axis.ofEvent(view, i) - x) / reach / 2;
    const size = (Model.events.action[i] === ACTION.FAIL ? 1e15 : Model.events.size[i] + 1) * near;
    if (size > worth) {
      worth = size;
      best = i;
    }
  }
  return best;
}

function tellOfEvent(timeline, canvas, event, x) {
  const i = eventNear(timeline, x);
  const sums = timeline.sums();
  const moment = i >= 0 ? i + 1 : Axis.momentAt(timeline.view, x);
  const state = sums.at(moment);
  timeline.drawCursor(event.clientX - canvas.getBoundingClientRect().left);
  Tip.show(event.clientX, event.clientY, i >= 0 ? Describe.event(i) : 'No event here', [
    ...(i >= 0 ? Describe.rows(i) : []),
    ['in use then', `${Text.bytes(sums.lent(state))}, ${Text.bytes(sums.asked(state))} requested`],
    ['pool has', Text.bytes(Model.totalAt(moment))],
  ]);
}

function listenPlot(timeline, plot, canvas) {
  const {view} = timeline;
  const xOf = (event) => view.from + Math.min(1, Math.max(0, Plot.along(canvas, event))) * (view.to - view.from);
  let drag = null; /* {from, zooming} while the button is down */
  plot.addEventListener('pointerdown', (event) => {
    if (event.button === 0) {
      drag = {from: xOf(event), zooming: event.shiftKey};
      plot.setPointerCapture(event.pointerId);
      if (!drag.zooming) {
        timeline.setMoment(Axis.momentAt(view, drag.from));
      }
    }
  });
  plot.addEventListener('pointermove', (event) => {
    if (drag !== null && !drag.zooming) {
      timeline.setMoment(Axis.momentAt(view, xOf(event)));
    }
    tellOfEvent(timeline, canvas, event, xOf(event));
  });
  plot.addEventListener('pointerup', (event) => {
    const to = xOf(event);
    if (drag !== null && drag.zooming && Math.abs(to - drag.from) > (view.to - view.from) * 0.005) {
      timeline.show(Math.min(drag.from, to), Math.max(drag.from, to));
    }
    drag = null;
  });
  plot.addEventListener('pointercancel', () => { drag = null; });
  plot.addEventListener('pointerleave', () => {
    Tip.hide();
    timeline.drawCursor();
  });
  plot.addEventListener('wheel', (event) => {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      timeline.zoom(Math.exp(event.deltaY * 0.004), xOf(event));
    }
  }, {passive: false});
}

function listenOverview(timeline, overview) {
  let panning = false;
  function pan(event) {
    const all = Axis.whole(timeline.view);
    timeline.showAround(all.from + Plot.along(overview, event) * (all.to - all.from));
  }
  overview.addEventListener('pointerdown', (event) => {
    panning = true;
    overview.setPointerCapture(event.pointerId);
    pan(event);
  });
  overview.addEventListener('pointermove', (event) => panning && pan(event));
  overview.addEventListener('pointerup', () => { panning = false; });
}

function timelineKeys(timeline) {
  const {view} = timeline;
  const stride = () => Math.max(1, Math.round((Axis.momentAt(view, view.to) - Axis.momentAt(view, view.from)) / 50));
  const move = (events) => timeline.setMoment(view.moment + events);
  const nextFailure = () => (Model.failures.find((i) => i + 1 > view.moment) ?? Model.failures[0] ?? view.moment - 1) + 1;
  return {
    ArrowLeft: (event) => move(event.shiftKey ? -stride() : -1),
    ArrowRight: (event) => move(event.shiftKey ? stride() : 1),
    PageDown: () => move(-stride()),
    PageUp: () => move(stride()),
    Home: () => timeline.setMoment(0),
    End: () => timeline.setMoment(Model.count),
    '+': () => timeline.zoom(0.6),
    '=': () => timeline.zoom(0.6),
    '-': () => timeline.zoom(1 / 0.6),
    0: () => timeline.all(),
    o: () => timeline.setMoment(nextFailure()),
  };
}
