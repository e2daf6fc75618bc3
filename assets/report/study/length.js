/* SPDX-License-Identifier: Apache-2.0 */
/* Loss against the position in the window, and at lengths beyond those of training. */

const BEYOND =
    " Beyond the training length a model reads positions that it never saw; YaRN rescales the rotary " +
    "frequencies without training.";

/* A recipe may leave out longer windows, or measure them in a section of their own (extension.js). */
function lengthSection(study) {
    const lengths = (run) => list(run.raw, "length").length > 0;
    const measured = !hasExtension(study) || study.arms.some((arm) => arm.runs.some(lengths));
    return section(
        "length",
        "Position and length",
        "Later positions see more context and should be easier." + (measured ? BEYOND : ""),
        el("div", {class: "grid"}, positionFigure(study), measured ? lengthFigure(study) : null),
    );
}

const lossOrPerplexity = selectControl("unit", "Show", [
    {label: "loss", value: "loss"},
    {label: "perplexity", value: "perplexity"},
]);

function positionFigure(study) {
    const edges =
        study.arms
            .flatMap((a) => a.runs.map((r) => list(r.raw, "position", "edges")))
            .find((e) => e.length > 1) || [];
    const name = (i) => {
        if (edges[i + 1] === undefined) return "";
        return edges[i + 1] - edges[i] <= 1 ? String(edges[i]) : edges[i] + "–" + (edges[i + 1] - 1);
    };
    return figure({
        id: "fig-position",
        title: "Held-out loss by position in the window",
        caption: "Mean over held-out windows in each range of positions.",
        controls: [lossOrPerplexity],
        draw: (host, fig) => {
            const arms = shownArms(study);
            const exp = fig.values.unit === "perplexity";
            const series = armSeries(
                arms,
                (run) =>
                    list(run.raw, "position", "loss").map((y, i) => ({
                        x: i + 1,
                        y: isNumber(y) && exp ? Math.exp(y) : y,
                    })),
                {dots: true},
            );
            if (!series.length) return {empty: whyNoRuns(study, "loss by position")};
            linePlot(host, fig, {
                label: "Held-out loss by position",
                series,
                x: {label: "position", integer: true, names: (v) => (Number.isInteger(v) ? name(v - 1) : "")},
                y: {
                    label: exp ? "perplexity" : "loss, nats per token",
                    log: exp,
                    format: (v) => significant(v, 4),
                },
            });
            return {legend: armLegend(arms, series), csv: seriesCsv(series, "range", fig.values.unit)};
        },
    });
}

function lengthFigure(study) {
    const trained = number(study.raw, "data", "seq_len");
    return figure({
        id: "fig-length",
        title: "Held-out loss by length of the window",
        caption:
            "Mean over all positions of the window, or over those that training never reached. " +
            "Solid: rotary positions as trained. Dashed: YaRN with the factor of the length.",
        controls: [
            selectControl("unit", "Show", [
                {label: "loss", value: "loss"},
                {label: "perplexity", value: "perplexity"},
                {label: "loss beyond the training length", value: "loss_beyond"},
            ]),
        ],
        draw: (host, fig) => {
            const arms = shownArms(study);
            const key = fig.values.unit;
            const point = (run, rope) => lengthPoints(run, rope, key, trained);
            const plainOnes = armSeries(arms, (run) => point(run, "plain"), {
                dots: true,
                dash: [],
                single: true,
            });
            const yarn = armSeries(arms, (run) => point(run, "yarn"), {
                dots: true,
                dash: [5, 4],
                single: true,
            });
            if (!plainOnes.length && !yarn.length) return {empty: whyNoRuns(study, "loss by length")};
            for (const s of yarn)
                [s.label, s.kind, s.points] = [s.label + ", YaRN", "yarn", joined(s, plainOnes, trained)];
            linePlot(host, fig, {
                label: "Held-out loss by length",
                series: plainOnes.concat(yarn),
                x: {
                    only: true,
                    log: true,
                    names: count,
                    label: "tokens in the window" + (trained !== null ? " (trained at " + trained + ")" : ""),
                },
                y: {
                    label: key === "perplexity" ? "perplexity" : "loss, nats per token",
                    log: key === "perplexity",
                    format: (v) => significant(v, 4),
                },
            });
            return {
                legend: armLegend(arms, plainOnes.concat(yarn)).concat(
                    yarn.length
                        ? [
                              {label: "plain", dash: []},
                              {label: "YaRN", mark: "dash"},
                          ]
                        : [],
                ),
                csv: seriesCsv(plainOnes.concat(yarn), "length", key),
            };
        },
    });
}

function lengthPoints(run, rope, key) {
    return list(run.raw, "length")
        .filter((row) => (get(row, "rope") || "plain") === rope && isNumber(get(row, "length")))
        .map((row) => ({x: row.length, y: number(row, key)}))
        .sort((a, b) => a.x - b.x);
}

/* At the training length YaRN is the plain model, so its curve starts there. */
function joined(s, plainOnes, trained) {
    const own = plainOnes.find((p) => p.style === s.style);
    const start = own && own.points.find((p) => p.x === trained);
    return start && isNumber(start.y) && !s.points.some((p) => p.x === trained)
        ? [start, ...s.points]
        : s.points;
}
