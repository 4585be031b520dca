/* trace_page_timeline.js - what part of the time is shown, and which moment.
 * SPDX-License-Identifier: Apache-2.0 */
'use strict';

function makeTimeline(onMoment) {
  const {count} = Model;
  const canvas = document.getElementById('plot-canvas');
  const cursor = document.getElementById('plot-cursor');
  const overview = document.getElementById('overview');
  const view = {by: 'client', all: false, axis: 'time', from: 0, to: 1, moment: count};
  let sums = null;
  let columns = null; /* what is on the canvas now */
  let outline = null; /* what is on the overview */

  function drawCursor(hover = null) {
    Plot.drawCursor(cursor, view, hover);
  }

  function draw() {
    columns = Plot.draw(canvas, view, sums);
    drawCursor();
    outline = Plot.drawOverview(overview, view, sums, outline);
  }

  /* Shows from x to x, within the whole and not narrower than a few events. */
  function show(from, to) {
    const all = Axis.whole(view);
    const least = (all.to - all.from) * 1e-7 + (view.axis === 'time' ? 100 : 4);
    const span = Math.min(Math.max(to - from, least), all.to - all.from);
    const middle = (from + to) / 2;
    view.from = Math.min(Math.max(middle - span / 2, all.from), all.to - span);
    view.to = view.from + span;
    draw();
  }

  function showAround(x) {
    show(x - (view.to - view.from) / 2, x + (view.to - view.from) / 2);
  }

  function showAll() {
    const all = Axis.whole(view);
    show(all.from, all.to);
  }

  function zoom(factor, x = null) {
    const here = Axis.ofMoment(view, view.moment);
    const centre = x ?? (here >= view.from && here <= view.to ? here : (view.from + view.to) / 2);
    show(centre - (centre - view.from) * factor, centre + (view.to - centre) * factor);
  }

  function setMoment(moment) {
    view.moment = Math.min(count, Math.max(0, moment));
    const x = Axis.ofMoment(view, view.moment);
    if (x < view.from || x > view.to) {
      showAround(x);
    }
    drawCursor();
    onMoment(view.moment);
  }

  function setup(changes) {
    Object.assign(view, changes);
    outline = null;
    sums = makeSums(Groups.of(view.by, view.all));
    showAll();
  }

  const self = {view, setup, draw, drawCursor, show, showAround, zoom, setMoment, all: showAll,
    width: () => columns.width, sums: () => sums, shares: () => sums.at(view.moment), groups: () => sums.groups,
    moment: () => view.moment};
  listenTimeline(self);
  return self;
}
