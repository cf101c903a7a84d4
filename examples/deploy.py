"""A trained policy as a video, and as ONNX in Gymnasium's own environment.

pip install 'purerl[onnx,gymnasium,video]' onnxruntime
"""

import gymnasium
import jax
import onnxruntime

import purerl


def main(steps=100_000, episodes=100, out="runs/deploy", **changes):
    """Train, film the best agent, export it, and play it; return its returns `[E]`."""
    config = purerl.PPOConfig(total_timesteps=steps, **changes)
    result = purerl.run(config, seeds=4, out=out, resume="auto")
    print("video:", purerl.render(result, seeds="best").path)
    best = jax.tree.map(lambda x: x[result.scores().argmax()], result.state)
    folder = purerl.export_policy(config, best, f"{out}/best", onnx=True)
    policy = onnxruntime.InferenceSession(folder / "policy.onnx")
    env, returns = gymnasium.make(config.env), []
    for episode in range(episodes):
        obs, ended, total = env.reset(seed=episode)[0], False, 0.0
        while not ended:
            (action,) = policy.run(None, {"obs": obs[None]})
            obs, reward, terminated, truncated, _ = env.step(int(action[0]))
            total, ended = total + float(reward), terminated or truncated
        returns.append(total)
    print(f"return in Gymnasium: {sum(returns) / episodes:.1f}")
    return returns


if __name__ == "__main__":
    main()
