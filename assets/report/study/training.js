/* SPDX-License-Identifier: Apache-2.0 */
/* What training looked like: loss, gradient norm, learning rate over steps, and the spikes. */
const EMA_KEEP = 0.9;
const TAILS = [
    {label: "the last nine tenths", value: 0.1},
    {label: "the last half", value: 0.5},
    {label: "the last tenth", value: 0.9},
];

function trainingSection(study) {
    const threshold = largest(
        study.arms.flatMap((a) => a.runs.map((r) => number(r.raw, "train", "spikes", "threshold"))),
    );
    return section(
        "training",
        "Training",
        "Thick line: mean over finished seeds; pale lines: single seeds. A triangle marks a loss spike" +
            (threshold !== null
                ? ", a point more than " + significant(threshold, 2) + " nats above the running average"
                : "") +
            "; a cross marks where a run ended early.",
        lossFigure(study),
        el(
            "div",
            {class: "grid"},
            stepFigure(study, {
                id: "fig-grad-norm",
                title: "Gradient norm",
                key: "grad_norm",
                y: "global L2 norm",
                caption: "L2 norm of the whole gradient before clipping; EMA 0.9 unless switched off.",
                log: true,
                smooth: true,
            }),
            stepFigure(study, {
                id: "fig-learning-rate",
                title: "Learning rate",
                key: "learning_rate",
                y: "learning rate",
                caption: "The rate of each step. Arms that share a schedule lie on each other.",
                log: false,
                smooth: false,
            }),
        ),
        spikeTable(study),
    );
}

/* [{x: step, y}] of one logged quantity. */
function stepPoints(run, key, smooth) {
    const steps = list(run.raw, "train", "step");
    const values = list(run.raw, "train", key);
    const ys = smooth ? smoothed(values, EMA_KEEP) : values.map((v) => (isNumber(v) ? v : null));
    return steps
        .slice(0, ys.length)
        .map((x, i) => ({x, y: ys[i]}))
        .filter((p) => isNumber(p.x));
}

function trimmed(points, from, limit) {
    return thinned(
        points.filter((p) => p.x >= from),
        limit,
    );
}

function lastStep(arms) {
    return (
        largest(arms.flatMap((arm) => arm.runs.map((run) => largest(list(run.raw, "train", "step"))))) || 0
    );
}

function lossFigure(study) {
    return figure({
        id: "fig-loss",
        wide: true,
        title: "Training loss",
        lead: () => {
            const words = valuesInWords(
                shownArms(study),
                (run) => lastOf(stepPoints(run, "loss", true)),
                (v) => fixed(v, 3),
            );
            return words ? "At the end (EMA): " + words : null;
        },
        caption: "Mean cross entropy of each logged step, nats per token, over optimiser steps.",
        controls: [
            checkControl("smooth", "EMA 0.9", true),
            checkControl("log", "log scale", false),
            selectControl("from", "Right", TAILS, 0.5),
        ],
        draw: (host, fig) => {
            const arms = shownArms(study);
            const box = el("div", {class: "multiples"});
            const limit = arms.length > 6 ? 240 : 600;
            host.append(box);
            let all = null;
            for (const part of [
                {label: "All steps", value: 0},
                TAILS.find((t) => t.value === fig.values.from),
            ]) {
                const from = part.value * lastStep(arms);
                const series = armSeries(arms, (run) =>
                    trimmed(stepPoints(run, "loss", fig.values.smooth), from, limit),
                );
                if (!series.length) continue;
                all = all || series;
                const top = part.value ? largest(series.flatMap((s) => s.points.map((p) => p.y))) : Infinity;
                const extra = arms.flatMap((arm) =>
                    spikeSeries(arm, from, top).concat(endSeries(arm, fig.values.smooth, from)),
                );
                linePlot(box, fig, {
                    title: capital(part.label),
                    label: "Training loss over steps",
                    height: 320,
                    series: series.concat(extra),
                    x: {label: "step", min: from},
                    y: {label: "loss, nats per token", log: fig.values.log, format: (v) => fixed(v, 3)},
                });
            }
            if (!all) return {empty: whyNoRuns(study, "training curves")};
            const spiked = arms.some((arm) => spikeSeries(arm, 0).length);
            const ended = arms.some((arm) => endSeries(arm, false, 0).length);
            return {
                legend: armLegend(arms, all).concat(
                    spiked ? [{label: "loss spike", mark: "triangle"}] : [],
                    ended ? [{label: "ended early", mark: "cross"}] : [],
                ),
                csv: seriesCsv(all, "step", "loss"),
            };
        },
    });
}

function lastOf(points) {
    for (let i = points.length - 1; i >= 0; i--) if (isNumber(points[i].y)) return points[i].y;
    return null;
}

/* Spike events are step numbers; each is drawn at the raw loss of that step, the point that was flagged,
 * or at the top of the curves where it would squeeze them. */
function spikeSeries(arm, from, top = Infinity) {
    const points = arm.runs.flatMap((run) => {
        const at = new Map(stepPoints(run, "loss", false).map((p) => [p.x, p.y]));
        return list(run.raw, "train", "spikes", "events")
            .filter((s) => s >= from && isNumber(at.get(s)))
            .map((s) => ({x: s, y: Math.min(top, at.get(s)), real: at.get(s)}));
    });
    return points.length
        ? [
              {
                  label: arm.name + ", spike",
                  style: arm.style,
                  marker: "triangle",
                  onlyDots: true,
                  points: points.sort((a, b) => a.x - b.x),
              },
          ]
        : [];
}

function endSeries(arm, smooth, from) {
    const points = arm.runs
        .filter((run) => !run.ok)
        .map((run) =>
            stepPoints(run, "loss", smooth)
                .filter((p) => isNumber(p.y))
                .pop(),
        )
        .filter((p) => p && p.x >= from);
    return points.length
        ? [{label: arm.name + ", ended early", style: arm.style, marker: "crossRot", onlyDots: true, points}]
        : [];
}

function stepFigure(study, spec) {
    return figure({
        ...spec,
        controls: [
            spec.smooth ? checkControl("smooth", "EMA 0.9", true) : null,
            spec.log ? checkControl("log", "log scale", true) : null,
        ].filter(Boolean),
        draw: (host, fig) => {
            const arms = shownArms(study);
            const series = armSeries(arms, (run) =>
                trimmed(stepPoints(run, spec.key, fig.values.smooth), 0, arms.length > 6 ? 200 : 400),
            );
            if (!series.length) return {empty: whyNoRuns(study, "curve of the " + spec.title.toLowerCase())};
            linePlot(host, fig, {
                label: spec.title + " over steps",
                series,
                x: {label: "step"},
                y: {
                    label: spec.y,
                    log: fig.values.log || false,
                    zero: true,
                    format: (v) => significant(v, 3),
                },
            });
            return {legend: armLegend(arms, series), csv: seriesCsv(series, "step", spec.y)};
        },
    });
}

function spikeTable(study) {
    const sum = (values) =>
        values.some(isNumber) ? values.filter(isNumber).reduce((a, b) => a + b, 0) : null;
    const flagged = (run) =>
        Array.isArray(get(run.raw, "train", "spikes", "flagged"))
            ? list(run.raw, "train", "spikes", "flagged").length
            : null;
    const score = (run) => number(run.raw, "train", "spikes", "spike_score");
    const cells = (runs) => [
        {value: sum(runs.map(spikeCount)), text: count(sum(runs.map(spikeCount)))},
        {value: sum(runs.map(flagged)), text: count(sum(runs.map(flagged)))},
        cellOf(runs.map(score), (v) => significant(v, 2)),
    ];
    const rows = study.arms.map((arm) => ({
        name: arm.name,
        style: arm.style,
        cells: cells(arm.runs),
        inner: arm.runs.map((run) => ({
            name: "seed " + run.seed,
            note: spikeSteps(run),
            cells: cells([run]),
        })),
    }));
    return dataTable({
        id: "tab-spikes",
        label: "Loss spikes",
        caption: "Loss spikes",
        columns: [
            {label: "Arm"},
            {
                label: "Spikes",
                unit: "events, all seeds",
                best: "min",
                title: "Flagged points next to each other count once",
            },
            {label: "Flagged points", unit: "all seeds", best: "min"},
            {
                label: "Spike score",
                unit: "% of points",
                best: "min",
                title: "Share of points at least 7 standard deviations above the rolling average (OLMo 2)",
            },
        ],
        rows,
    });
}

function spikeSteps(run) {
    const at = list(run.raw, "train", "spikes", "events");
    return at.length ? "at steps " + at.slice(0, 12).join(", ") + (at.length > 12 ? " …" : "") : null;
}
