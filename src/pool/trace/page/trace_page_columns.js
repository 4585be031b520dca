/* trace_page_columns.js - memory over time, gathered for the columns of a picture.
 *
 * A view says what is shown: {axis, from, to, moment}; x is a time or a number of events. A column of
 * pixels may stand for many events: it shows the moment among them when most was lent, so that no
 * peak is lost.
 * SPDX-License-Identifier: Apache-2.0 */
'use strict';

const Axis = (() => {
  const {events, count} = Model;
  const length = count > 0 ? Math.max(events.time[count - 1], 1) : 1;

  /* All of the trace, and a little around it. */
  function whole(view) {
    const end = view.axis === 'time' ? length : Math.max(count, 1);
    return {from: -0.012 * end, to: 1.012 * end};
  }

  function ofEvent(view, i) {
    return view.axis === 'time' ? events.time[i] : i + 1;
  }

  function ofMoment(view, moment) {
    return moment === 0 ? whole(view).from / 2 : ofEvent(view, moment - 1);
  }

  function momentAt(view, x) {
    return view.axis === 'time' ? Model.momentOfTime(x) : Math.min(count, Math.max(0, Math.floor(x)));
  }

  return {whole, ofEvent, ofMoment, momentAt};
})();

const Columns = (() => {
  const {events, count} = Model;

  function empty(bands, from, to, width) {
    return {width, from, to, had: new Float64Array(width), asked: new Float64Array(width),
      bands: Array.from({length: bands}, () => new Float64Array(width)), lent: new Float64Array(width), most: 0};
  }

  /* Goes on to the first event at or after x `end`: what was had at most, and the sums when most
   * was lent. */
  function advance(walk, sums, view, end) {
    const best = walk.state.slice();
    let most = walk.lent;
    let had = Model.totalAt(walk.at);
    while (walk.at < count && Axis.ofEvent(view, walk.at) < end) {
      if (sums.apply(walk.state, walk.at)) {
        walk.lent = sums.lent(walk.state);
        if (walk.lent > most) {
          most = walk.lent;
          best.set(walk.state);
        }
      }
      had = Math.max(had, events.total[walk.at]);
      walk.at++;
    }
    return {best, most, had};
  }

  /* What to draw from x `from` to x `to` in `width` columns. */
  function gather(view, sums, from, to, width) {
    const out = empty(sums.groups.names.length, from, to, width);
    const at = Axis.momentAt(view, from);
    const state = sums.at(at);
    const walk = {at, state, lent: sums.lent(state)};
    for (let c = 0; c < width; c++) {
      const {best, most, had} = advance(walk, sums, view, from + (to - from) * (c + 1) / width);
      out.bands.forEach((band, k) => { band[c] = best[k]; });
      out.lent[c] = most;
      out.asked[c] = sums.asked(best);
      out.had[c] = had;
      out.most = Math.max(out.most, had, most);
    }
    return out;
  }

  return {gather};
})();
