/* SPDX-License-Identifier: Apache-2.0 */
/* Dot rows: one row per series, one panel per measure, marks on an axis of their own. Cleveland's dot
 * plot, chosen over bars because twenty rows stay readable, single runs can be seen beside their mean,
 * and a logarithmic axis is honest. */
const DOT_ROW = 22;
const DOT_HEAD = 40;
const DOT_FOOT = 34;

/* rows: [{label, style}] panels: [{title, unit, log, zero, reference: {value, label}, join, marks: per
 * row [{value, kind, pale}] }] kind: dot, ring, tick, triangle, ...; a line joins the marks of a row
 * when panel.join. */
function dotRows(host, rows, panels, label) {
    const width = host.clientWidth || 600;
    const ctx0 = el("canvas").getContext("2d");
    ctx0.font = font(12);
    const names = Math.min(
        width * 0.34,
        190,
        24 + largest(rows.map((r) => ctx0.measureText(plain(r.label, 34)).width)),
    );
    /* One canvas for each band of panels, so that paper can break between them. */
    const least = theme.printing ? 150 : 210;
    const across = clamp(Math.floor((width - names) / least), 1, panels.length);
    const perBand = Math.ceil(panels.length / Math.ceil(panels.length / across));
    const panelWidth = (width - names) / perBand;
    const top = DOT_HEAD;
    for (let first = 0; first < panels.length; first += perBand) {
        const band = panels.slice(first, first + perBand);
        const foot = band.some((p) => p.reference) ? DOT_FOOT : DOT_FOOT - 12;
        const canvas = el("canvas", {
            role: "img",
            "aria-label": plain(label + ": " + band.map((p) => p.title).join(", ")),
        });
        host.append(canvas);
        const {ctx} = canvasSize(canvas, width, top + rows.length * DOT_ROW + foot);
        drawRowNames(ctx, rows, names, top);
        band.forEach((p, i) =>
            drawPanel(ctx, rows, p, {
                left: names + i * panelWidth + 14,
                right: names + (i + 1) * panelWidth - 14,
                top,
            }),
        );
    }
}

function drawRowNames(ctx, rows, width, top) {
    ctx.font = font(12);
    ctx.textAlign = "left";
    ctx.textBaseline = "middle";
    rows.forEach((row, i) => {
        const y = top + (i + 0.5) * DOT_ROW;
        ctx.fillStyle = seriesColour(row.style);
        drawMarker(ctx, row.style.marker, 6, y, 4);
        ctx.fillStyle = cssColour("ink");
        ctx.fillText(fitText(ctx, plain(row.label, 34), width - 22), 18, y);
    });
}

/* Where values lie: {at(value) -> pixel, ticks}. The range covers all marks and the reference, with some
 * air. */
function dotScale(panel, left, right) {
    const log = panel.log && panel.marks.flat().every((m) => !isNumber(m.value) || m.value > 0);
    const values = panel.marks
        .flat()
        .map((m) => m.value)
        .concat(panel.reference ? [panel.reference.value] : [])
        .filter((v) => isNumber(v) && (!log || v > 0));
    const warp = log ? Math.log10 : (v) => v;
    let low = warp(smallest(values));
    let high = warp(largest(values));
    if (panel.zero && !log) low = Math.min(0, low);
    const air = high > low ? 0.06 * (high - low) : Math.max(1e-9, Math.abs(high) * 0.05) + (log ? 0.3 : 0);
    if (!(panel.zero && low === 0)) low -= air;
    high += air;
    const at = (v) => left + ((warp(v) - low) / (high - low)) * (right - left);
    let parts = Math.max(3, Math.floor((right - left) / 60));
    let ticks = log ? logTicks(low, high) : linearTicks(low, high, parts);
    while (!log && ticks.length < 3 && parts < 8) ticks = linearTicks(low, high, ++parts);
    return {at, ticks, format: log ? bare : tickFormat(ticks.length > 1 ? ticks[1] - ticks[0] : ticks[0])};
}

function linearTicks(low, high, parts) {
    if (!(high > low)) return [low];
    const step = niceStep(high - low, parts);
    const out = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++)
        out.push(Number((k * step).toPrecision(12)));
    return out;
}

function logTicks(low, high) {
    const out = [];
    const decades = high - low;
    const leads = [
        [2.2, [1]],
        [1.4, [1, 3]],
        [1, [1, 2, 5]],
        [0, [1, 1.5, 2, 3, 5, 7]],
    ].find(([least]) => decades >= least)[1];
    for (let e = Math.floor(low); e <= high; e++)
        for (const k of leads)
            if (Math.log10(k) + e >= low && Math.log10(k) + e <= high) out.push(k * 10 ** e);
    /* Within a fraction of a decade few of these leads occur: even steps serve there. */
    let ticks = out;
    for (let parts = 3; ticks.length < 3 && parts < 9; parts++)
        ticks = linearTicks(10 ** low, 10 ** high, parts).filter((v) => v > 0);
    return ticks;
}

function drawPanel(ctx, rows, panel, box) {
    const bottom = box.top + rows.length * DOT_ROW;
    ctx.textAlign = "left";
    ctx.textBaseline = "alphabetic";
    ctx.fillStyle = cssColour("ink");
    ctx.font = font(12, 600);
    ctx.fillText(fitText(ctx, panel.title, box.right - box.left + 20), box.left - 6, box.top - 24);
    ctx.fillStyle = cssColour("muted");
    ctx.font = font(11);
    ctx.fillText(fitText(ctx, panel.unit || "", box.right - box.left + 20), box.left - 6, box.top - 10);
    ctx.fillStyle = cssColour("grid");
    rows.forEach((row, i) =>
        ctx.fillRect(box.left - 6, Math.round(box.top + (i + 0.5) * DOT_ROW), box.right - box.left + 12, 1),
    );
    if (!panel.marks.flat().some((m) => isNumber(m.value)))
        return void ctx.fillText("no data", box.left, box.top + DOT_ROW * 0.5 - 4);
    const scale = dotScale(panel, box.left, box.right);
    drawTicks(ctx, scale, box, bottom);
    if (panel.reference && isNumber(panel.reference.value))
        drawReference(ctx, panel.reference, scale, box, bottom);
    panel.marks.forEach((marks, i) =>
        drawMarks(ctx, rows[i], marks, panel, scale, box.top + (i + 0.5) * DOT_ROW),
    );
    return undefined;
}

function drawTicks(ctx, scale, box, bottom) {
    ctx.textAlign = "center";
    ctx.textBaseline = "top";
    let last = -Infinity;
    for (const v of scale.ticks) {
        const x = scale.at(v);
        const text = scale.format(v);
        const half = ctx.measureText(text).width / 2;
        ctx.fillStyle = cssColour("grid");
        ctx.fillRect(Math.round(x), box.top, 1, bottom - box.top + 4);
        if (x - half < last + 6) continue;
        ctx.fillStyle = cssColour("muted");
        ctx.fillText(text, x, bottom + 7);
        last = x + half;
    }
}

function drawReference(ctx, reference, scale, box, bottom) {
    const x = scale.at(reference.value);
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = cssColour("ink");
    ctx.setLineDash([4, 3]);
    ctx.beginPath();
    ctx.moveTo(x, box.top - 2);
    ctx.lineTo(x, bottom + 2);
    ctx.stroke();
    ctx.font = font(10);
    ctx.textBaseline = "top";
    const width = ctx.measureText(reference.label).width;
    ctx.textAlign = "left";
    ctx.fillText(reference.label, clamp(x - width / 2, box.left - 8, box.right + 8 - width), bottom + 20);
    ctx.restore();
}

function drawMarks(ctx, row, marks, panel, scale, y) {
    const shown = marks.filter((m) => isNumber(m.value) && (!panel.log || m.value > 0));
    const solid = shown.filter((m) => !m.pale);
    if (panel.join && solid.length > 1) {
        ctx.strokeStyle = seriesColour(row.style, 0.45);
        ctx.lineWidth = 2;
        ctx.beginPath();
        solid.forEach((m, i) => ctx[i ? "lineTo" : "moveTo"](scale.at(m.value), y));
        ctx.stroke();
    }
    for (const m of shown) {
        ctx.fillStyle = ctx.strokeStyle = seriesColour(row.style, m.pale ? 0.45 : 1);
        drawMarker(
            ctx,
            m.kind || (m.pale ? "circle" : row.style.marker),
            scale.at(m.value),
            y,
            m.pale ? 3 : 5,
        );
    }
    if (!shown.length) {
        ctx.fillStyle = cssColour("muted");
        ctx.font = font(11);
        ctx.textAlign = "left";
        ctx.textBaseline = "middle";
        ctx.fillText("–", scale.at(scale.ticks[0]) - 3, y);
    }
}
