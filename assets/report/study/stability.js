/* SPDX-License-Identifier: Apache-2.0 */
/* Ladders of learning rates: the largest that each arm stands, and what training looked like at each. */
const laddersOf = (study) => list(study.raw, "ladders").filter((l) => list(l, "rungs").length);
const hasLadder = (study) => laddersOf(study).length > 0;
const rateText = (v) => (isNumber(v) ? v.toExponential().replace("+", "") : "–");
const RUNG_PLACES = [
    {label: "residual stream", value: "max_abs_residual"},
    {label: "attention output", value: "max_abs_attn_out"},
    {label: "MLP output", value: "max_abs_ffn_out"},
];

function stabilitySection(study) {
    return section(
        "stability",
        "Learning rates",
        "Every arm was trained at every rate of a ladder. A run converges when it finishes with a held-out loss " +
            "near the best of its arm; the largest rate of an arm is the last one up to which all of its runs do.",
        ladderTable(study),
        lossOverRate(study),
        el("div", {class: "grid"}, rungLoss(study), rungActivations(study)),
        el("div", {class: "grid"}, overRate(study, SPIKES_OVER_RATE), overRate(study, PEAK_OVER_RATE)),
    );
}

/* All rates of the study, rising. */
function ratesOf(study) {
    const all = laddersOf(study).flatMap((l) => list(l, "rungs").map((r) => number(r, "learning_rate")));
    return [...new Set(all.filter(isNumber))].sort((a, b) => a - b);
}

const rungAt = (ladder, rate) => list(ladder, "rungs").find((r) => number(r, "learning_rate") === rate);

function rungCell(rung) {
    if (!rung) return {value: null, text: "–"};
    const loss = number(rung, "loss");
    const lost = number(rung, "runs") - number(rung, "finished");
    if (loss === null) return {value: null, text: "diverged", note: "no run finished"};
    const stands = number(rung, "converged") === number(rung, "runs");
    const why = lost ? lost + " of " + number(rung, "runs") + " diverged" : "not converged";
    return {value: loss, text: stands ? fixed(loss, 3) : "(" + fixed(loss, 3) + ")", note: stands ? undefined : why};
}

function ladderTable(study) {
    const rates = ratesOf(study);
    return dataTable({
        id: "tab-ladder",
        label: "Learning rates",
        caption: "Held-out loss by learning rate",
        note: "In parentheses: not converged, or a part of the seeds diverged.",
        columns: [
            {label: "Arm"},
            {label: "Largest rate", unit: "that converges", best: "max"},
            {label: "Best rate"},
            {label: "Best loss", unit: "nats a token", best: "min"},
            ...rates.map((r) => ({label: rateText(r), unit: "nats a token", best: "min"})),
        ],
        rows: laddersOf(study).map((ladder, i) => ({
            name: text(ladder, "label") || text(ladder, "of"),
            style: seriesStyle(i),
            cells: [
                {value: number(ladder, "largest"), text: rateText(number(ladder, "largest"))},
                {value: number(ladder, "best_rate"), text: rateText(number(ladder, "best_rate"))},
                {value: number(ladder, "best_loss"), text: fixed(number(ladder, "best_loss"), 3)},
                ...rates.map((r) => rungCell(rungAt(ladder, r))),
            ],
        })),
    });
}

/* One line per ladder: pick(rung) over rates. */
function ladderSeries(study, pick) {
    return laddersOf(study)
        .map((ladder, i) => ({
            label: text(ladder, "of"),
            style: seriesStyle(i),
            dots: true,
            points: list(ladder, "rungs").map((r) => ({x: number(r, "learning_rate"), y: pick(r)})),
        }))
        .filter((s) => s.points.some((p) => isNumber(p.y)));
}

const ladderLegend = (series) => series.map((s) => ({label: s.label, style: s.style}));

function lossOverRate(study) {
    return figure({
        id: "fig-ladder-loss",
        wide: true,
        title: "Held-out loss by learning rate",
        caption: "Mean over the seeds that finished. A line ends where no run did.",
        draw: (host, fig) => {
            const series = ladderSeries(study, (r) => number(r, "loss"));
            if (!series.length) return {empty: "no run finished"};
            linePlot(host, fig, {
                label: "Held-out loss over learning rate",
                series,
                height: 320,
                x: {label: "learning rate", log: true, only: ratesOf(study), names: rateText},
                y: {label: "loss, nats per token", format: (v) => fixed(v, 3)},
            });
            return {legend: ladderLegend(series), csv: seriesCsv(series, "learning rate", "loss")};
        },
    });
}

const SPIKES_OVER_RATE = {
    id: "fig-ladder-spikes",
    title: "Spike score by learning rate",
    caption: "Share of updates whose loss is at least 7 standard deviations above the rolling average (OLMo 2).",
    y: "% of updates",
    pick: (r) => number(r, "spike_score"),
};
const PEAK_OVER_RATE = {
    id: "fig-ladder-peak",
    title: "Largest activation by learning rate",
    caption: "M-Act after training: the largest |h| of the residual stream after a layer, mean over layers.",
    y: "max |h|",
    log: true,
    pick: (r) => number(r, "m_act"),
};

function overRate(study, spec) {
    return figure({
        ...spec,
        draw: (host, fig) => {
            const series = ladderSeries(study, spec.pick);
            if (!series.length) return {empty: "no run finished"};
            linePlot(host, fig, {
                label: spec.title,
                series,
                x: {label: "learning rate", log: true, only: ratesOf(study), names: rateText},
                y: {label: spec.y, log: spec.log || false, zero: !spec.log, format: (v) => significant(v, 3)},
            });
            return {legend: ladderLegend(series), csv: seriesCsv(series, "learning rate", spec.y)};
        },
    });
}

/* Curves over steps of all ladders at one rate, in the colours of the ladders. */
function rungSeries(study, rate, pointsOf) {
    return laddersOf(study).flatMap((ladder, i) => {
        const arms = study.arms.filter(
            (a) => text(a.raw, "rung", "of") === text(ladder, "of") && number(a.raw, "rung", "learning_rate") === rate,
        );
        return armSeries(arms, pointsOf, {single: true}).map((s) => ({
            ...s,
            label: text(ladder, "of"),
            style: seriesStyle(i),
        }));
    });
}

const rateOptions = (study) => ratesOf(study).map((r) => ({label: "rate " + rateText(r), value: r}));
const middleRate = (study) => ratesOf(study)[Math.floor(ratesOf(study).length / 2)];

function rungFigure(study, spec) {
    return figure({
        ...spec,
        controls: [selectControl("rate", "Learning", rateOptions(study), middleRate(study)), ...spec.controls],
        draw: (host, fig) => {
            const series = rungSeries(study, fig.values.rate, (run) => spec.points(run, fig.values));
            if (!series.length) return {empty: "nothing was logged at this rate"};
            linePlot(host, fig, {
                label: spec.title,
                series,
                x: {label: "step"},
                y: {label: spec.y, log: fig.values.log || false, format: (v) => significant(v, 4)},
            });
            return {legend: ladderLegend(series), csv: seriesCsv(series, "step", spec.y)};
        },
    });
}

function rungLoss(study) {
    return rungFigure(study, {
        id: "fig-rung-loss",
        title: "Training loss at one rate",
        caption: "Mean over seeds, EMA 0.9 unless switched off; a diverged run ends early.",
        y: "loss, nats per token",
        controls: [checkControl("smooth", "EMA 0.9", true)],
        points: (run, values) => trimmed(stepPoints(run, "loss", values.smooth), 0, 400),
    });
}

function rungActivations(study) {
    return rungFigure(study, {
        id: "fig-rung-activations",
        title: "Largest activations during training",
        caption: "Largest absolute value on the probe text, at steps of training: of one layer or of all.",
        y: "max |x|",
        controls: [
            selectControl("place", "Of", RUNG_PLACES),
            selectControl("layer", "Layer", layerOptions(study, {label: "the largest layer", value: "largest"})),
            checkControl("log", "log scale", true),
        ],
        points: (run, values) => probePoints(run, values.place, values.layer),
    });
}
