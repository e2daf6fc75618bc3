/* SPDX-License-Identifier: Apache-2.0 */
/* The results as the sections want them. Arms are kept in the order of the file; the baseline takes the
 * neutral colour. */

/* {raw, arms, baseline, layers, hidden}; an arm: {index, name, label, gated, style, raw, runs}; a run:
 * {seed, status, ok, raw} */
function makeStudy(raw) {
    const arms = list(raw, "arms").map((arm, index) => ({
        index,
        raw: arm,
        name: text(arm, "name") || "arm " + (index + 1),
        label: text(arm, "label"),
        gated: isGated(arm),
        runs: list(arm, "runs").map((run) => ({
            raw: run,
            seed: number(run, "seed"),
            status: text(run, "status") || "unknown",
            ok: get(run, "status") === "done",
        })),
    }));
    const against = text(raw, "comparisons", 0, "against");
    const baseline = arms.find((a) => a.name === against) || arms.find((a) => !a.gated) || arms[0];
    let next = 1;
    for (const arm of arms) arm.style = seriesStyle(arm === baseline ? 0 : next++);
    const layers =
        largest(arms.flatMap((a) => a.runs.map((r) => list(r.raw, "inspect", "layers").length))) || 0;
    return {raw, arms, baseline, layers, hidden: new Set()};
}

/* What uniform attention gives to position 0. Arms with a window of their own have a value of their own. */
function uniformOf(study, arm, range) {
    return number(arm.raw, "uniform_share", range) ?? number(study.raw, "uniform_share", range);
}

/* Reference lines for the shown arms: one, or one per window length with the names of its arms. */
function uniformMarks(study, range) {
    const names = new Map();
    for (const arm of shownArms(study)) {
        const value = uniformOf(study, arm, range);
        if (value !== null) names.set(value, [...(names.get(value) || []), arm.name]);
    }
    if (names.size < 2) return [...names.keys()].map((y) => ({y, label: "uniform attention"}));
    return [...names].map(([y, of]) => ({y, label: "uniform: " + plain(of.join(", "), 30)}));
}

/* Losses per token can be compared only between arms that were trained on the same tokens. */
function sameData(study) {
    return new Set(study.arms.map((arm) => number(arm.raw, "data_set"))).size < 2;
}

function isGated(arm) {
    const position = text(arm, "gate", "position");
    return position
        ? position !== "none"
        : list(arm, "runs").some((run) => number(run, "inspect", "gate_mean") !== null);
}

const shownArms = (study) => study.arms.filter((arm) => !study.hidden.has(arm.index));
/* Keys of the arms that have a curve among `series`. */
const armLegend = (arms, series) =>
    arms
        .filter((arm) => series.some((s) => s.style === arm.style))
        .map((arm) => ({label: arm.name, style: arm.style}));
const seedOptions = (study) =>
    [...new Set(study.arms.flatMap((a) => a.runs.map((r) => r.seed)))]
        .filter(isNumber)
        .map((s) => ({label: "seed " + s, value: s}));
const layerOptions = (study, first) =>
    [first].concat(Array.from({length: study.layers}, (_, i) => ({label: "layer " + (i + 1), value: i})));

/* A layer's value by what a control says: one layer's, or the mean or the largest over all. */
function overLayers(run, choice, pick) {
    const layers = list(run.raw, "inspect", "layers");
    if (typeof choice === "number") return layers[choice] ? pick(layers[choice]) : null;
    const values = layers.map((layer) => (layer ? pick(layer) : null));
    return choice === "largest" ? largest(values) : mean(values);
}

/* Curves of arms: `pointsOf(run)` gives [{x, y}] of one run. The mean over finished runs (over all where
 * none finished) is the line of the arm; single seeds are pale lines beside it as long as they can be
 * told apart. */
function armSeries(arms, pointsOf, extra = {}) {
    const runs = arms.reduce((n, arm) => n + arm.runs.length, 0);
    const out = [];
    for (const arm of arms) {
        const curves = arm.runs
            .map((run) => ({run, points: pointsOf(run) || []}))
            .filter((c) => c.points.some((p) => isNumber(p.y)));
        const finished = curves.filter((c) => c.run.ok);
        const average = averaged((finished.length ? finished : curves).map((c) => c.points));
        if (average.length) out.push({label: arm.name, style: arm.style, points: average, ...extra});
        if (curves.length > 1 && runs <= 24 && !extra.single)
            for (const c of curves)
                out.push({
                    label: arm.name + ", seed " + c.run.seed,
                    style: arm.style,
                    points: c.points,
                    thin: true,
                    stepped: extra.stepped,
                    kind: "seed " + c.run.seed,
                });
    }
    return out;
}

/* Mean of several curves at each x that any of them has; a null stays a gap unless another curve has a
 * value there. */
function averaged(curves) {
    if (curves.length === 1) return curves[0];
    const at = new Map();
    for (const points of curves)
        for (const p of points) {
            if (!at.has(p.x)) at.set(p.x, []);
            at.get(p.x).push(p.y);
        }
    return [...at].sort((a, b) => a[0] - b[0]).map(([x, ys]) => ({x, y: mean(ys)}));
}

/* [{x: layer from 1, y}] of one run. */
function layerPoints(run, pick) {
    return list(run.raw, "inspect", "layers").map((layer, i) => ({x: i + 1, y: layer ? pick(layer) : null}));
}

/* The runs that stand for an arm: those that finished, or all of them where none did. */
function countedRuns(arm) {
    const finished = arm.runs.filter((run) => run.ok);
    return finished.length ? finished : arm.runs;
}

/* One sentence with the value of every arm, or of the extremes where there are many. */
function valuesInWords(arms, valueOf, format) {
    const known = arms
        .map((arm) => ({arm, value: mean(countedRuns(arm).map(valueOf))}))
        .filter((k) => k.value !== null);
    if (!known.length) return null;
    const say = (k) => plain(k.arm.name, 24) + " " + format(k.value);
    if (known.length <= 4) return known.map(say).join(" · ");
    const low = known.reduce((a, k) => (k.value < a.value ? k : a));
    const high = known.reduce((a, k) => (k.value > a.value ? k : a));
    return "lowest " + say(low) + " · highest " + say(high) + " · " + known.length + " arms";
}

/* The common shape of a figure by layer. pick(layer, values) -> number. */
function layerFigure(study, spec) {
    return figure({
        ...spec,
        draw: (host, fig) => {
            const arms = shownArms(study).filter((arm) => !spec.gatedOnly || arm.gated);
            const series = armSeries(
                arms,
                (run) => layerPoints(run, (layer) => spec.pick(layer, fig.values)),
                {dots: study.layers <= 24},
            );
            if (!series.length) return {empty: spec.why || whyNoRuns(study, "layer statistics")};
            const marks = spec.marks ? spec.marks(fig.values).filter((m) => isNumber(m.y)) : [];
            linePlot(host, fig, {
                label: spec.title,
                series,
                marks,
                height: spec.height,
                x: {label: "layer", integer: true},
                y: {
                    label: spec.y,
                    log: fig.values.log || false,
                    zero: !fig.values.log,
                    format: spec.format,
                    tick: spec.tick,
                },
            });
            return {legend: armLegend(arms, series), csv: seriesCsv(series, "layer", spec.y)};
        },
    });
}

function whyNoRuns(study, what) {
    const runs = shownArms(study).flatMap((arm) => arm.runs);
    if (!runs.length) return study.hidden.size ? "all arms are switched off" : "no run was made";
    const bad = runs.filter((run) => !run.ok);
    return bad.length === runs.length ? "no run finished" : "the results hold no " + what;
}

const armRows = (arms) => arms.map((arm) => ({label: arm.name, style: arm.style}));
