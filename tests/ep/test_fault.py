# SPDX-License-Identifier: Apache-2.0
"""What only ONNX Runtime can bring about: memory that runs out in a run, things that outlive a registration."""

import pytest
from test_provider import child, finished

# The memory between element-wise nodes is what runs out.
SMALL = {"MILLPOND_DEVICE": "host", "MILLPOND_HOST_MEMORY": str(8 << 20), "MILLPOND_PASSES": "-cluster"}


@pytest.mark.parametrize("mode", ["eager", "threaded", "adversarial:3"])
def test_memory_runs_out_within_a_run_and_a_smaller_run_works(mode):
    done = child(
        """
        from onnx import helper
        names = [f"r{i}" for i in range(12)]
        nodes = [helper.make_node("LeakyRelu", ["x"], [name], alpha=i / 16) for i, name in enumerate(names)]
        nodes += [helper.make_node("Sum", names, ["y"])]  # all twelve are alive at once
        session = provider.session(small_models.model(nodes, {"x": ["n"]}, {"y": ["n"]}))
        def good(count):
            y = session.run(None, {"x": np.ones(count, np.float32)})[0]
            assert y.shape == (count,) and np.all(y == 12)
        for _ in range(3):
            good(1000)
            try:
                session.run(None, {"x": np.ones(1 << 18, np.float32)})
                raise SystemExit("14 MiB fitted into 8 MiB")
            except Exception as error:
                assert "memory" in str(error), error
            good(1 << 10)
            good(1 << 14)
    """,
        MILLPOND_HOST=mode,
        MILLPOND_LOG="off",
        **SMALL,
    )
    finished(done)


def test_memory_runs_out_in_one_of_two_sessions():
    done = child(
        """
        import threading
        large = provider.session(small_models.add_chain(8, 1 << 20), options=provider.session_options(threads=1))
        small = provider.session(small_models.mixed(), options=provider.session_options(threads=1))
        want, faults = expected(), []
        def keep_failing():
            for _ in range(20):
                try:
                    large.run(None, {"x": np.ones(1 << 20, np.float32)})
                except Exception as error:
                    if "memory" not in str(error) and "Allocation failed" not in str(error):
                        faults.append(error)
        threads = [threading.Thread(target=keep_failing) for _ in range(2)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            try:
                np.testing.assert_allclose(run(small), want, rtol=1e-5, atol=1e-5)
            except Exception as error:
                assert "memory" in str(error) or "Allocation failed" in str(error), error
        for thread in threads:
            thread.join()
        assert not faults, faults[0]
        np.testing.assert_allclose(run(small), want, rtol=1e-5, atol=1e-5)
    """,
        MILLPOND_LOG="off",
        **SMALL,
    )
    finished(done)


def test_huge_outputs_are_a_clean_failure():
    done = child(
        """
        from onnx import helper
        constants = {"w": np.ones((1, 1, 3, 3), np.float32)}
        for huge in (
            {"strides": [1 << 20] * 2}, {"strides": [1 << 30] * 2}, {"output_shape": [1 << 40] * 2},
            {"output_shape": [1 << 62] * 2}, {"output_shape": [-5, 5]}, {"strides": [1 << 62] * 2},
        ):
            nodes = [helper.make_node("ConvTranspose", ["x", "w"], ["y"], name="up", **huge)]
            model = small_models.model(nodes, {"x": ["n", 1, 4, 4]}, {"y": ["n", 1, "h", "w2"]}, constants)
            try:
                provider.session(model).run(None, {"x": np.ones((1, 1, 4, 4), np.float32)})
                raise SystemExit("it fitted")
            except Exception as error:
                print(error, file=sys.stderr)
        exact = provider.session(small_models.mixed(), provider_options={"use_tf32": "0"})
        np.testing.assert_allclose(run(exact), expected(), rtol=1e-5, atol=1e-5)
    """,
        MILLPOND_LOG="off",
        **SMALL,
    )
    finished(done)


# ---- what outlives its registration ----


def test_session_outlives_its_registration():
    done = child("""
        session = provider.session(small_models.mixed())
        before = run(session)
        ort.unregister_execution_provider_library(provider.NAME)
        np.testing.assert_allclose(run(session, 5)[:3].shape, before.shape)
        np.testing.assert_allclose(run(session), before)
        provider.register()
        again = provider.session(small_models.mixed())
        np.testing.assert_allclose(run(again), before)
        np.testing.assert_allclose(run(session), before)
        del session
        gc.collect()
        np.testing.assert_allclose(run(again), before)
    """)
    finished(done)


def test_values_outlive_their_registration():
    done = child("""
        provider.register()
        alone = ort.OrtValue.ortvalue_from_numpy(np.ones(4, np.float32), "cuda", 0)
        session = provider.session(small_models.add_chain(2))
        binding = session.io_binding()
        binding.bind_cpu_input("x", np.zeros(4, np.float32))
        binding.bind_output("y", "cuda", 0)
        session.run_with_iobinding(binding)
        [made] = binding.get_outputs()
        del binding, session
        gc.collect()
        ort.unregister_execution_provider_library(provider.NAME)
        assert made.shape() == [4] and alone.shape() == [4]
        provider.register()
        value = ort.OrtValue.ortvalue_from_numpy(np.full(4, 3, np.float32), "cuda", 0)
        del made, alone
        gc.collect()
        assert value.numpy().tolist() == [3.0] * 4
    """)
    finished(done)


# ---- nodes with parts left out, and ranks beyond ours ----


def test_outputs_left_out_in_the_middle():
    done = child(
        """
        from onnx import helper
        x = np.arange(24, dtype=np.float32).reshape(6, 4)
        for axis, shape in ((0, [2, 4]), (1, None)):
            parts = 3 if axis == 0 else 4
            names = ["a"] + [""] * (parts - 2) + ["c"]
            shape = shape or [6, 1]
            nodes = [helper.make_node("Split", ["x"], names, axis=axis, num_outputs=parts)]
            session = provider.session(small_models.model(nodes, {"x": [6, 4]}, {"a": shape, "c": shape}))
            assert set(provider.assignment(session)) == {provider.NAME}
            first, last = session.run(None, {"x": x})
            want = np.split(x, parts, axis)
            assert np.array_equal(first, want[0]) and np.array_equal(last, want[-1])
        nodes = [helper.make_node("LayerNormalization", ["x", "g"], ["y", "", "i"])]
        model = small_models.model(nodes, {"x": [6, 4], "g": [4]}, {"y": [6, 4], "i": [6, 1]})
        feed = {"x": x, "g": np.ones(4, np.float32)}
        y, inverse = provider.session(model).run(None, feed)
        np.testing.assert_allclose(inverse[:, 0], 1 / np.sqrt(x.var(1) + 1e-5), rtol=1e-5)
    """,
    )
    finished(done)


def test_ranks_above_sixteen_run_on_the_cpu():
    done = child(
        """
        from onnx import helper
        for rank, owner in ((16, provider.NAME), (17, provider.CPU)):
            dims = [2] + [1] * (rank - 2) + [3]
            nodes = [helper.make_node("Add", ["x", "x"], ["y"])]
            session = provider.session(small_models.model(nodes, {"x": dims}, {"y": dims}))
            assert set(provider.assignment(session)) == {owner}
            x = np.arange(6, dtype=np.float32).reshape(dims)
            assert np.array_equal(session.run(None, {"x": x})[0], 2 * x)
    """,
    )
    finished(done)


def test_rank_above_sixteen_that_shows_only_when_running_is_named():
    done = child(
        """
        from onnx import helper
        nodes = [helper.make_node("Identity", ["x"], ["t"]), helper.make_node("Relu", ["t"], ["y"], name="late")]
        session = provider.session(small_models.model(nodes, {"x": None}, {"y": None}))
        assert session.run(None, {"x": np.ones([1] * 16, np.float32)})[0].shape == (1,) * 16
        try:
            session.run(None, {"x": np.ones([1] * 17, np.float32)})
            raise SystemExit("rank 17 was taken")
        except Exception as error:
            assert "late" in str(error) and "rank 17" in str(error), error
    """,
    )
    finished(done)
