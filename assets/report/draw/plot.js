/* SPDX-License-Identifier: Apache-2.0 */
/* Curves, through Chart.js with animation off and our own reference lines. One function, `linePlot`,
 * because every curve of a report is the same thing: named series over a number axis, linear or
 * logarithmic, with a key in HTML. */

/* Lines across the plot: {y, label} or {x, label}. */
const referenceLines = {
    id: "referenceLines",
    afterDatasetsDraw(chart, args, options) {
        const {ctx, chartArea: area, scales} = chart;
        const taken = [];
        for (const mark of options.marks || []) {
            const along = mark.y !== undefined;
            const at = along ? scales.y.getPixelForValue(mark.y) : scales.x.getPixelForValue(mark.x);
            if (!(along ? at >= area.top - 1 && at <= area.bottom + 1 : at >= area.left && at <= area.right))
                continue;
            ctx.save();
            ctx.strokeStyle = ctx.fillStyle = options.colour;
            ctx.lineWidth = 1;
            ctx.setLineDash([4, 4]);
            ctx.beginPath();
            ctx.moveTo(along ? area.left : at, along ? at : area.top);
            ctx.lineTo(along ? area.right : at, along ? at : area.bottom);
            ctx.stroke();
            ctx.font = font(11);
            ctx.textAlign = "right";
            ctx.textBaseline = along && at < area.top + 16 ? "top" : "bottom";
            /* A rim of the colour of the paper keeps the words legible where curves run below them. */
            let x = (along ? area.right : at) - 4;
            const y = (along ? at : area.top + 14) + (along && at < area.top + 16 ? 3 : -3);
            /* Beside a label that stands at the same height already; without a word where no room is left. */
            const wide = ctx.measureText(mark.label).width;
            for (const other of taken)
                if (along && Math.abs(other.y - y) < 13) x = Math.min(x, other.left - 10);
            if (along && taken.length && x - wide < area.left) {
                ctx.restore();
                continue;
            }
            taken.push({y, left: x - wide});
            ctx.setLineDash([]);
            ctx.lineWidth = 4;
            ctx.strokeStyle = cssColour("surface");
            ctx.strokeText(mark.label, x, y);
            ctx.fillText(mark.label, x, y);
            ctx.restore();
        }
    },
};

/* spec: {title, height, label, series, x, y, marks}
 *   series: [{label, style, points: [{x, y}], thin, dots, dash, stepped, onlyDots, group}]; points
 *     with y null make a gap, and `real` is what a tooltip says of a point that is drawn elsewhere
 *   x: {label, integer, only (ticks at the points alone), log, min, max, names(value) -> text}
 *   y: {label, log, zero, min, max, format(value) -> text, tick(value) -> text} Thin series (single
 *     seeds, raw values) are drawn pale and have no part in tooltips. */
function linePlot(host, fig, spec) {
    const canvas = el("canvas", {
        role: "img",
        "aria-label": plain((spec.title ? spec.title + ": " : "") + spec.label),
    });
    const box = el("div", {class: "plot"}, canvas);
    host.append(box);
    /* Drawn once at this size: a figure is drawn again as a whole when the width changes, also for
     * paper. */
    [canvas.width, canvas.height] = [Math.max(160, box.clientWidth), spec.height || 280];
    if (svgRecording) svgCanvas(canvas);
    const chart = new Chart(canvas, {
        type: "line",
        data: {datasets: spec.series.map((s) => dataset(s, spec.y.log))},
        options: {
            animation: false,
            responsive: false,
            parsing: false,
            normalized: true,
            devicePixelRatio: pixelRatio(),
            layout: {padding: {top: 4, right: 8}},
            interaction: {
                mode: spec.series.filter((s) => !s.thin).length > 9 ? "nearest" : "index",
                axis: "x",
                intersect: false,
            },
            plugins: {
                legend: {display: false},
                title: {
                    display: Boolean(spec.title),
                    text: plain(spec.title || ""),
                    align: "start",
                    color: cssColour("ink"),
                    font: {size: 13, weight: 600, family: FONT},
                    padding: {bottom: 8},
                },
                tooltip: tooltip(spec),
                referenceLines: {marks: spec.marks || [], colour: cssColour("muted")},
            },
            scales: {x: xAxis(spec, canvas.width), y: yAxis(spec)},
        },
        plugins: [referenceLines],
    });
    fig.charts.push(chart);
    return chart;
}

function dataset(s, log) {
    const colour = s.style ? seriesColour(s.style, s.thin ? 0.45 : 1) : cssColour("muted");
    const points = log ? s.points.map((p) => (p.y > 0 ? p : {x: p.x, y: null})) : s.points;
    const cross = s.marker === "crossRot";
    const single = s.dots || points.length === 1;
    const radius = s.onlyDots ? 5 : single ? 3 : 0;
    const layer = {order: 1};
    if (s.onlyDots) layer.order = 0;
    else if (s.thin) layer.order = 2;
    return {
        label: s.label,
        data: points,
        thin: Boolean(s.thin),
        borderColor: colour,
        backgroundColor: colour,
        borderWidth: s.thin ? 1 : 2,
        borderDash: s.dash || (s.style ? s.style.dash : [4, 4]),
        showLine: !s.onlyDots,
        stepped: s.stepped || false,
        tension: 0,
        spanGaps: false,
        pointRadius: radius,
        pointHitRadius: s.thin ? 0 : 6,
        pointHoverRadius: s.thin ? 0 : Math.max(4, radius),
        pointBorderWidth: cross ? 2.5 : 1.5 * Boolean(s.onlyDots),
        pointBorderColor: s.onlyDots && !cross ? cssColour("surface") : colour,
        pointStyle: s.marker || (s.style ? s.style.marker : "circle"),
        ...layer,
    };
}

function tooltip(spec) {
    const format = spec.y.format || ((v) => significant(v, 4));
    return {
        backgroundColor: cssColour("tip"),
        titleColor: cssColour("tip-ink"),
        bodyColor: cssColour("tip-ink"),
        cornerRadius: 4,
        padding: 8,
        boxWidth: 8,
        boxHeight: 8,
        usePointStyle: true,
        filter: (item) => !item.dataset.thin,
        titleFont: {family: FONT},
        bodyFont: {family: FONT},
        callbacks: {
            title: (items) =>
                items.length
                    ? spec.x.label +
                      " " +
                      (spec.x.names ? spec.x.names(items[0].parsed.x) : count(items[0].parsed.x))
                    : "",
            label: (item) =>
                " " + plain(item.dataset.label, 40) + ": " + format(item.raw.real ?? item.parsed.y),
        },
    };
}

function axis(spec) {
    return {
        title: {
            display: Boolean(spec.label),
            text: spec.label,
            color: cssColour("muted"),
            font: {size: 12, family: FONT},
        },
        grid: {color: cssColour("grid"), drawTicks: false, borderColor: cssColour("line")},
        ticks: {
            color: cssColour("muted"),
            padding: 6,
            maxRotation: 0,
            maxTicksLimit: 9,
            autoSkipPadding: 14,
            font: {size: 11, family: FONT},
        },
        min: spec.min,
        max: spec.max,
    };
}

function xAxis(spec, width) {
    const out = axis(spec.x);
    const xs = spec.series.flatMap((s) => s.points.map((p) => p.x));
    out.type = spec.x.log ? "logarithmic" : "linear";
    out.grid.display = false;
    if (spec.x.only) {
        const at = [...new Set(xs)].sort((a, b) => a - b);
        [out.min, out.max] = [at[0] * 0.93, at[at.length - 1] * 1.07];
        out.afterBuildTicks = (scale) => {
            scale.ticks = at.map((value) => ({value}));
        };
    }
    if (spec.x.integer) {
        const low = smallest(xs);
        const high = largest(xs);
        /* Room at the sides, so that the first and the last point are not on the frame; one point stands
         * in the middle. */
        const letters = spec.x.names ? largest(integerTicks(low, high, 1).map((v) => spec.x.names(v).length)) : 3;
        const most = Math.min(12, Math.max(2, Math.floor((width - 60) / (6.5 * letters + 10))));
        out.min = low - (high === low ? 1 : 0.02 * (high - low));
        out.max = high + (high === low ? 1 : 0.02 * (high - low));
        out.afterBuildTicks = (scale) => {
            const step = Math.max(1, Math.ceil(niceStep(Math.max(1, high - low), most)));
            scale.ticks = integerTicks(low, high, step).map((value) => ({value}));
        };
    } else if (!spec.x.only) {
        const low = smallest(xs);
        const high = largest(xs);
        [out.min, out.max] = [spec.x.min ?? (low > 0 && low < 0.05 * high ? 0 : low), spec.x.max ?? high];
        out.afterBuildTicks = (scale) => {
            scale.ticks = linearTicks(out.min, out.max, Math.max(2, Math.floor(width / 90))).map((value) => ({
                value,
            }));
        };
    }
    out.ticks.callback = (v) => (spec.x.names ? spec.x.names(v) : count(v));
    return out;
}

function yAxis(spec) {
    const out = axis(spec.y);
    out.type = spec.y.log ? "logarithmic" : "linear";
    if (!spec.y.log && spec.y.min === undefined && spec.y.zero) out.beginAtZero = true;
    const ys = (spec.marks || []).map((m) => m.y).filter(isNumber);
    if (ys.length)
        [out.suggestedMin, out.suggestedMax] = [
            Math.min(...ys) * (spec.y.log ? 0.8 : 0.9),
            Math.max(...ys) * 1.1,
        ];
    if (spec.y.log) logAxis(out, spec, ys);
    out.ticks.callback = (v, i, all) => {
        if (spec.y.tick) return spec.y.tick(v);
        return spec.y.log ? bare(v) : tickFormat(all.length > 1 ? all[1].value - all[0].value : v)(v);
    };
    return out;
}

/* Ticks at 1, 2, 5 (or 1 only) times powers of ten, within the values and not far beyond. */
function logAxis(out, spec, marks) {
    const values = spec.series
        .flatMap((s) => s.points.map((p) => p.y))
        .concat(marks)
        .filter((v) => isNumber(v) && v > 0);
    if (!values.length) return;
    const low = Math.log10(smallest(values));
    const high = Math.log10(largest(values));
    const air = Math.max(0.02, 0.04 * (high - low));
    [out.min, out.max] = [10 ** (low - air), 10 ** (high + air)];
    out.afterBuildTicks = (scale) => {
        scale.ticks = logTicks(low - air, high + air).map((value) => ({value}));
    };
}

/* The points of series as rows of a CSV file. */
function seriesCsv(series, xName, yName) {
    const rows = [["series", "kind", xName, yName]];
    for (const s of series)
        for (const p of s.points) rows.push([s.label, s.kind || (s.thin ? "single" : "mean"), p.x, p.y]);
    return rows;
}
