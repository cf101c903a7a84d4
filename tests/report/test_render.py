"""Videos: who is in them, how many frames, and that they show what is evaluated."""

import base64
import html
import json
import re
import shutil
import sys
import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image, ImageColor

import purerl
from purerl import envs
from purerl.acting.environment import bind_params, resolve_env
from purerl.acting.evaluate import Recording, evaluate, record
from purerl.acting.rollout import step_without_reset
from purerl.cli import main, results
from purerl.config import ConfigError
from purerl.randomisation import Uniform
from purerl.report import drawing, page, plots
from purerl.report.drawing import Drawing, Moment
from purerl.report.folder import read_result
from purerl.report.playing import chosen_seeds
from purerl.runner.result import load_run
from purerl.storage.files import write_json
from tests.helpers import tiny_config
from tests.report import synthetic


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Four agents of CartPole, whose episodes are cut after 20 steps."""
    out = tmp_path_factory.mktemp("render") / "run"
    return purerl.run(tiny_config(), seeds=4, out=out, progress=False)


def gif_frames(path):
    with Image.open(path) as image:
        return image.n_frames, image.size


@pytest.mark.slow(optimised=False)
def test_a_video_shows_the_episodes_of_purerl_evaluate(run, capsys):
    made = purerl.render(run.out, episodes=2)
    saved = load_run(run.out)
    final = run.evaluation["episode_return"][:, -1].mean(-1)
    order = np.argsort(-final, kind="stable")
    ranked = [saved.seeds[i] for i in (order[0], order[2], order[3])]
    assert list(made.seeds) == list(dict.fromkeys(ranked))
    expected = purerl.evaluate(saved, episodes=2).episode_return
    np.testing.assert_array_equal(made.episode_return, expected[list(made.seeds)])
    # CartPole pays 1 for a step.
    np.testing.assert_array_equal(made.episode_return, made.episode_length)
    longest = made.episode_length.max(0)
    assert made.frames == (longest + 1).sum()
    assert made.path == run.out / "video.gif"
    assert gif_frames(made.path) == (made.frames, (320 * len(made.seeds), 284))
    assert len(set(made.episode_length.ravel().tolist())) > 1
    with Image.open(made.path) as image:
        picture = np.asarray(image.convert("RGB")).astype(int)
    assert tuple(picture[-1, 0]) == (255, 255, 255)
    dark = np.abs(picture - ImageColor.getrgb(drawing.DARK)).max(-1)
    assert (dark <= 4).sum() > 300  # Flat colours are nearly as drawn.

    assert main(["render", f"{run.out}:2", "--max-steps", "5"]) == 0
    assert "seed 2: return 5.00 in 5 steps" in capsys.readouterr().out
    assert gif_frames(run.out / "video-seed-2.gif") == (6, (320, 284))


def test_the_page_of_a_run_has_its_videos_or_the_command(run, tmp_path):
    out = tmp_path / "copy"
    shutil.copytree(run.out, out, ignore=shutil.ignore_patterns("*.gif"))
    text = page.folder_page(out).read_text()
    assert f"purerl render {out}" in text and "image/gif" not in text
    made = purerl.render(out, seeds="best", max_steps=3, out=out / "short.gif")
    last = run.evaluation["episode_return"][:, -1].mean(-1)
    assert made.seeds == (int(last.argmax()),)
    text = page.folder_page(out).read_text()
    data = base64.b64encode(made.path.read_bytes()).decode()
    assert f'src="data:image/gif;base64,{data}"' in text
    assert "short.gif" in text and "purerl render" not in text


def test_a_result_in_memory_gives_the_same_video(run, tmp_path):
    there = purerl.render(run.out, seeds=[3, 0], max_steps=4, out=tmp_path / "a.gif")
    here = purerl.render(run, seeds="3,0", max_steps=4, out=tmp_path / "b.gif")
    assert here.seeds == there.seeds == (3, 0)
    assert here.path.read_bytes() == there.path.read_bytes()
    for call, words in (
        (
            lambda: purerl.render(run._replace(state=None)),
            "without its states; purerl.load_run",
        ),
        (lambda: purerl.render(run.out / "missing"), "there is no folder"),
    ):
        with pytest.raises(ConfigError, match=words):
            call()


def test_mp4_has_the_frames_and_pace_that_are_asked_for(run, tmp_path, monkeypatch):
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    path = tmp_path / "video.mp4"
    made = purerl.render(run.out, seeds=0, max_steps=7, fps=10, out=path)
    assert made.frames == 8
    frames, seconds = ffmpeg.count_frames_and_secs(str(path))
    assert frames == 8 and abs(seconds - 0.8) < 0.05
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    drawing._ffmpeg.cache_clear()
    with pytest.raises(ConfigError, match=r"imageio-ffmpeg.*purerl\[video\]"):
        purerl.render(run.out, format="mp4")
    drawing._ffmpeg.cache_clear()


@pytest.mark.parametrize(
    ("args", "fragment"),
    [
        (["--seeds", "middle"], "'middle' is neither one of best, median, worst"),
        (["--seeds", "7"], "nor a seed of this run, which has seeds 0 to 3"),
        (["--seeds", "best,"], "'' is neither one of best"),
        (["--format", "html"], "format must be one of gif, mp4, got 'html'"),
        (["--out", "x.png"], "format must be one of gif, mp4, got 'png'"),
        (["--out", "x.gif", "--format", "mp4"], "out must end with .mp4"),
        (["--out", "missing/x.gif"], "there is no folder missing"),
        (["--fps", "60"], "programs show of a GIF, 50"),
        (["--fps", "0"], "fps must be"),
        (["--episodes", "0"], "episodes must be"),
        (["--max-steps", "0"], "max_steps must be"),
        (["--episode-seed", "-1"], "episode_seed must be a whole number from 0 to"),
    ],
)
def test_what_cannot_be_shown_is_refused(run, args, fragment, capsys):
    assert main(["render", str(run.out), *args]) == 2
    assert fragment in " ".join(capsys.readouterr().err.split())


def test_ranks_are_those_of_the_last_evaluation():
    scores = np.array([5.0, 9.0, np.nan, 7.0])
    seeds = (10, 11, 12, 13)
    three = [(11, "best"), (10, "median"), (12, "worst")]
    assert chosen_seeds(seeds, scores, None) == three  # 9 7 [5] nan: the lower middle
    assert chosen_seeds(seeds, scores, "13,best") == [(13, ""), (11, "best")]
    assert chosen_seeds(seeds, scores, 12) == [(12, "worst")]
    assert chosen_seeds((4,), scores[:1], None) == [(4, "")]
    assert chosen_seeds((4, 5), scores[:2], None) == [(5, "best"), (4, "worst")]
    assert chosen_seeds((4, 5), None, None) == [(4, ""), (5, "")]
    numbers = np.array([13, 11])  # Also of numpy.
    assert chosen_seeds(seeds, scores, numbers) == [(13, ""), (11, "best")]
    assert chosen_seeds(seeds, scores, np.int64(12)) == [(12, "worst")]
    with pytest.raises(ConfigError, match=r"'2\.5' is neither one of best"):
        chosen_seeds(seeds, scores, 2.5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="no evaluation that ranks"):
        chosen_seeds(seeds, None, None)


def recorded(lengths):
    """Episodes whose state is ten times the step, with a return of a half a step."""
    shape = (len(lengths), 7, len(lengths[0]))
    at = np.broadcast_to(np.arange(7)[:, None], shape)
    lengths = np.array(lengths)
    return Recording(Moment(10 * at, 0 * at), 0.5 * at, lengths, lengths < 99)


def test_a_film_goes_on_until_the_longest_episode_ends():
    drawn = []

    def draw(state, params):
        drawn.append(int(state))
        return np.zeros((240, 320, 3), np.uint8)

    shown = drawing.Film(["a", "b"], recorded([[2, 1], [4, 3]]), Drawing(draw))
    assert shown.size == (640, 284)
    assert shown.times == [(0, t) for t in range(5)] + [(1, t) for t in range(4)]
    for index in range(len(shown.times)):
        shown.frame(index)
    # Agent a has three moments, agent b five; then two and four.
    assert drawn[::2] == [0, 10, 20, 20, 20, 0, 10, 10, 10]
    assert drawn[1::2] == [0, 10, 20, 30, 40, 0, 10, 20, 30]
    assert shown.captions(0, 2, 0) == ("episode 1 of 2", "return 1", "step 2  ended")
    assert shown.captions(1, 3, 1) == ("episode 2 of 2", "return 1.50", "step 3  ended")


def test_a_drawing_that_fails_leaves_the_old_video(tmp_path):
    path = tmp_path / "video.gif"
    path.write_bytes(b"old")

    def draw(state, params):
        if state > 20:
            return np.zeros((3, 3), np.uint8)
        return np.full((240, 320, 3), state, np.uint8)

    failing = drawing.Film(["a"], recorded([[5]]), Drawing(draw))
    with pytest.raises(ConfigError, match="must return a picture"):
        drawing.write_film(path, failing, "gif", 10)
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["video.gif"]
    drawing.write_film(
        path, drawing.Film(["a"], recorded([[2]]), Drawing(draw)), "gif", 12
    )
    with Image.open(path) as image:
        pauses = []
        for index in range(image.n_frames):
            image.seek(index)
            pauses.append(image.info["duration"])
    assert pauses == [80, 80, 1500]  # The last frame stays.


def test_a_recording_is_the_evaluation_moment_by_moment():
    """Pendulum, whose rewards are fractions: sums, lengths and states by hand."""
    env = envs.make("Pendulum-v1")
    params = env.default_params.replace(max_steps_in_episode=6)

    def act(obs):
        return obs[:, 1:2]

    key = jax.random.key(4)
    expected = evaluate(env, params, act, key, num_episodes=3, max_steps=9)
    played = record(
        env,
        params,
        lambda obs, memory: (act(obs), memory),
        (),
        key,
        num_episodes=3,
        max_steps=9,
        keep=lambda state, obs: (state.theta, state.time, obs),
    )
    np.testing.assert_array_equal(played.episode_length, [6, 6, 6])
    np.testing.assert_array_equal(played.episode_length, expected.episode_length)
    np.testing.assert_allclose(
        played.episode_return[-1], expected.episode_return, rtol=1e-6
    )
    assert played.ended.all() and played.episode_return.shape == (10, 3)
    np.testing.assert_array_equal(played.episode_return[0], 0.0)
    theta, time, obs = played.kept
    np.testing.assert_array_equal(time[:7], np.tile(np.arange(7)[:, None], 3))
    np.testing.assert_allclose(obs[:7, :, 0], np.cos(theta[:7]), atol=1e-5)
    # The reward of a step looks at the state before it: -(angle^2 + ...).
    wrapped = (theta + np.pi) % (2 * np.pi) - np.pi
    speed, push = obs[..., 2], np.clip(obs[..., 1], -2, 2)
    cost = wrapped**2 + 0.1 * speed**2 + 0.001 * push**2
    summed = -np.cumsum(cost[:6], axis=0)
    np.testing.assert_allclose(played.episode_return[1:7], summed, rtol=1e-4)


def test_metrics_are_drawn_as_they_were_logged(run, tmp_path, capsys):
    result = read_result(run.out)
    names = ("entropy", "evaluation_return")
    panels = plots.metric_curves(result, names).axes
    assert [axes.get_ylabel() for axes in panels] == ["entropy", "evaluation return"]
    mean = panels[0].get_lines()[-1]
    np.testing.assert_allclose(mean.get_ydata(), run.metrics["entropy"].mean(0))
    np.testing.assert_array_equal(mean.get_xdata(), run.metrics["env_steps"][0])
    evaluated = panels[1].get_lines()[-1].get_ydata()
    expected = run.evaluation["episode_return"].mean((0, 2))
    np.testing.assert_allclose(evaluated, expected, rtol=1e-6)

    out = str(tmp_path / "two.png")
    flags = ["--metric", "entropy", "--metric", "value_loss", "--out", out]
    assert main(["plot", str(run.out), *flags]) == 0
    assert (tmp_path / "two.png").read_bytes().startswith(b"\x89PNG")
    assert main(["plot", str(run.out), "--metric", "entropy"]) == 0
    assert (run.out / "entropy.png").exists()
    capsys.readouterr()
    assert main(["plot", str(run.out), "--metric", "entrop"]) == 2
    text = " ".join(capsys.readouterr().err.split())
    assert "the run has no 'entrop'. It has: approx_kl" in text
    for name in ("entropy", "evaluation_return", "evaluation_length", "value_loss"):
        assert f"{name}" in text.split("It has:")[1]


def test_metrics_of_a_sweep_have_a_panel_each():
    data = synthetic.grid(num_seeds=4).isel(hidden_sizes=[0], entropy_coef=[0, 1])
    names = ["policy_loss", "evaluation_return"]
    figure, _ = plots.sweep_curves(data, metric=names)
    labels = [axes.get_ylabel() for axes in figure.axes]
    assert labels == ["policy loss", "evaluation return"]
    alone = plots.sweep_curves(data)
    for one, two in zip(alone.axes.lines, figure.axes[1].lines, strict=True):
        np.testing.assert_array_equal(one.get_ydata(), two.get_ydata())
    with pytest.raises(ConfigError, match=r"the sweep has no 'loss'. It has: .*policy"):
        plots.sweep_curves(data, metric=["loss"])


def test_other_folders_have_no_metrics(tmp_path):
    write_json(tmp_path / "manifest.json", {"kind": "comparison"})
    with pytest.raises(ConfigError, match="metrics are drawn of a run or a sweep"):
        results.draw(tmp_path, ("entropy",))


@pytest.mark.slow
def test_braxs_page_has_every_moment(tmp_path):
    config = tiny_config(
        env="brax/inverted_pendulum", total_timesteps=64, eval_max_steps=6
    )
    out = tmp_path / "run"
    with jax.numpy_rank_promotion("allow"):  # brax's code broadcasts across ranks.
        purerl.run(config, seeds=2, out=out, progress=False)
        made = purerl.render(out)
    assert made.path == out / "video.html"
    text = html.unescape(made.path.read_text())
    found = re.findall(r'var system = "([^"]*)"', text)
    assert len(found) == 2
    # What is seen where the scripts of the views do not come.
    assert text.count("could not be fetched from unpkg.com") == 2
    for packed, length in zip(found, made.episode_length[:, 0], strict=True):
        system = json.loads(zlib.decompress(base64.b64decode(packed)))
        places = np.array([x["pos"] for x in system["states"]["x"]])
        assert len(places) == length + 1
        assert np.ptp(places, axis=0).max() > 0  # Something moves.
    assert f"return {drawing.return_text(made.episode_return[0, 0])}" in text


def play_cart(env, params, steps):
    """A cart that is always pushed to the right: all its positions and observations."""
    return record(
        env,
        params,
        lambda obs, memory: (jnp.ones(len(obs), jnp.int32), memory),
        (),
        jax.random.key(2),
        num_episodes=3,
        max_steps=steps,
        keep=lambda state, obs: (getattr(state, "inner", state).x, obs[0]),
    )


def test_the_last_frame_of_a_randomised_environment_is_its_last_state():
    """What is seen of the cart is where it is, and the same in both kinds of draws."""
    numbers = {"max_steps_in_episode": 6, "length": Uniform(0.4, 0.6)}
    played = {}
    for per in ("episode", "environment"):
        config = tiny_config(env_params=numbers, randomise_per=per)
        env = resolve_env(config)
        played[per] = play_cart(env, bind_params(env, config.env_params), 8)
        np.testing.assert_array_equal(played[per].episode_length, 6)
        place, seen = played[per].kept
        np.testing.assert_array_equal(place[:7], seen[:7])
    for one, other in zip(*map(jax.tree.leaves, played.values()), strict=True):
        np.testing.assert_array_equal(one[:7], other[:7])


def test_random_steps_of_a_randomised_environment_are_those_of_evaluations():
    """The walk of the arms' values is drawn of the keys that `step` draws it of."""
    env = envs.wrappers.RandomisedOnce(envs.make("KArmedBandit-v0"))
    params = env.default_params.replace(
        max_steps_in_episode=3, walk_std=Uniform(1.0, 2.0)
    )
    _, state = env.reset(jax.random.key(0), params)
    key, arm = jax.random.key(1), jnp.int32(0)
    _, there, reward, *_ = env.step(key, state, arm, params)
    _, here, same, *_ = step_without_reset(env, params, key, state, arm)
    np.testing.assert_array_equal(here.inner.values, there.inner.values)
    assert float(same) == float(reward) and float(jnp.ptp(here.inner.values)) > 0


class OnlyResets(envs.CartPole):
    """A cart that nobody can step without a reset."""

    steps_without_reset = False


def test_the_last_known_moment_is_shown_where_a_step_resets():
    env = OnlyResets()
    params = env.default_params.replace(max_steps_in_episode=6)
    plain = play_cart(envs.CartPole(), params, 8)
    played = play_cart(env, params, 8)
    places, expected = played.kept[0], plain.kept[0]
    np.testing.assert_allclose(places[:6], expected[:6], rtol=1e-5)
    np.testing.assert_array_equal(places[6], places[5])
    np.testing.assert_allclose(played.kept[1][:7], plain.kept[1][:7], rtol=1e-5)


@pytest.mark.parametrize("env", ["gymnasium/CartPole-v1", "nobody/here"])
def test_a_page_advises_only_what_works(run, tmp_path, env):
    """Nothing is drawn of these; of CartPole the command is there."""
    if env.startswith("gymnasium/"):
        pytest.importorskip("gymnasium")
    other = run._replace(config=run.config.replace(env=env), out=tmp_path)
    for result, is_advised in ((other, False), (run, True)):
        advice = page._videos(run.out, result.config)
        assert ("purerl render" in advice) == is_advised


def test_an_environment_on_the_host_is_refused_in_a_sentence(run, tmp_path):
    pytest.importorskip("gymnasium")
    other = run._replace(config=run.config.replace(env="gymnasium/CartPole-v1"))
    with pytest.raises(ConfigError, match=r"no drawing of .* stepped on the host"):
        purerl.render(other, out=tmp_path / "x.gif")
