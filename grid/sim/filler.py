"""What fills most of an EPP's page and means nothing to us: the Go runtime, the process, the controller runtime.

Names are the real ones, so that a scan meets what it will meet in the field; texts and values are made up. The static
part (about 55 kB) is built once per process and kind of page.
"""

from functools import cache

from grid.sim.exposition import Block, family, head, histogram


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_CPU = _names("""
gc_mark_assist gc_mark_dedicated gc_mark_idle gc_pause gc_total idle scavenge_assist scavenge_background
scavenge_total total user
""")

_GC = _names("""
gc_cleanups_executed_cleanups_total gc_cleanups_queued_cleanups_total gc_cycles_automatic_gc_cycles_total
gc_cycles_forced_gc_cycles_total gc_cycles_total_gc_cycles_total gc_finalizers_executed_finalizers_total
gc_finalizers_queued_finalizers_total gc_gogc_percent gc_gomemlimit_bytes gc_heap_allocs_bytes_total
gc_heap_allocs_objects_total gc_heap_frees_bytes_total gc_heap_frees_objects_total gc_heap_goal_bytes
gc_heap_live_bytes gc_heap_objects_objects gc_heap_tiny_allocs_objects_total gc_limiter_last_enabled_gc_cycle
gc_scan_globals_bytes gc_scan_heap_bytes gc_scan_stack_bytes gc_scan_total_bytes gc_stack_starting_size_bytes
""")

_GODEBUG = _names("""
allowmultiplevcs asynctimerchan containermaxprocs cryptocustomrand embedfollowsymlinks execerrdot fips140ems
gocachehash gocachetest gocacheverify gotestjsonbuildtext gotypesalias htmlmetacontenturlescape http2client
http2server httpcookiemaxnum httplaxcontentlength httpmuxgo121 httpservecontentkeepheaders installgoroot
multipartmaxheaders multipartmaxparts multipathtcp netedns0 panicnil randautoseed randseednop rsa1024min
tarinsecurepath tls10server tls3des tlsmaxrsasize tlsrsakex tlssha1 tlsunsafeekm updatemaxprocs urlmaxqueryparams
urlstrictcolons winreadlinkvolume winsymlink x509keypairleaf x509negativeserial x509rsacrt x509sha256skid
x509usefallbackroots x509usepolicies zipinsecurepath
""")

_MEMORY = _names("""
heap_free heap_objects heap_released heap_stacks heap_unused metadata_mcache_free metadata_mcache_inuse
metadata_mspan_free metadata_mspan_inuse metadata_other os_stacks other profiling_buckets total
""")

_MEMSTATS = _names("""
alloc_bytes alloc_bytes_total buck_hash_sys_bytes frees_total gc_sys_bytes heap_alloc_bytes heap_idle_bytes
heap_inuse_bytes heap_objects heap_released_bytes heap_sys_bytes last_gc_time_seconds mallocs_total
mcache_inuse_bytes mcache_sys_bytes mspan_inuse_bytes mspan_sys_bytes next_gc_bytes other_sys_bytes
stack_inuse_bytes stack_sys_bytes sys_bytes
""")

_SCHED = _names("""
gomaxprocs_threads goroutines_created_goroutines_total goroutines_goroutines goroutines_not_in_go_goroutines
goroutines_runnable_goroutines goroutines_running_goroutines goroutines_waiting_goroutines threads_total_threads
""")

_PAUSES = _names("""
gc_pauses sched_latencies sched_pauses_stopping_gc sched_pauses_stopping_other sched_pauses_total_gc
sched_pauses_total_other
""")

_PAUSE_BOUNDS = (
    "6.399999999999999e-08", "6.399999999999999e-07", "7.167999999999999e-06", "8.191999999999999e-05",
    "0.0009175039999999999", "0.010485759999999998", "0.11744051199999998",
)  # fmt: skip
_SIZE_BOUNDS = (
    "8.999999999999998", "24.999999999999996", "64.99999999999999", "144.99999999999997", "320.99999999999994",
    "704.9999999999999", "1536.9999999999998", "3200.9999999999995", "6528.999999999999", "13568.999999999998",
    "27264.999999999996",
)  # fmt: skip
_WAIT_BOUNDS = ("1e-08", "1e-07", "1e-06", "9.999999999999999e-06", "9.999999999999999e-05", "0.001", "0.01", "0.1",
                "1", "10")  # fmt: skip

_GROUPS = (
    ("go_cpu_classes_", _CPU, "_cpu_seconds_total",
     "processor time since the start that the runtime books under the class '{words}'. The classes are estimates "
     "that add up among themselves; the operating system counts otherwise"),
    ("go_", _GC, "",
     "what the garbage collector keeps under '{words}'. It moves with every collection; in an idle process "
     "that may take minutes"),
    ("go_godebug_non_default_behavior_", _GODEBUG, "_events_total",
     "how often the process took the older behaviour that GODEBUG {words} brings back. Counted only "
     "while that setting differs from the toolchain's default, so it is nearly always 0"),
    ("go_memory_classes_", _MEMORY, "_bytes",
     "memory that the runtime has mapped and books under the class '{words}'. Together they are what the runtime has "
     "asked of the operating system"),
    ("go_memstats_", _MEMSTATS, "",
     "the older accounting of the same memory, entry '{words}', kept for dashboards that still ask for it"),
    ("go_sched_", _SCHED, "",
     "what the scheduler counts under '{words}' at the moment of this scrape; single readings say little, only their "
     "course does"),
)  # fmt: skip

_WORKQUEUE = ("adds_total", "depth", "longest_running_processor_seconds", "retries_total", "unfinished_work_seconds")


def _kind(name: str) -> str:
    return "counter" if name.endswith("_total") else "gauge"


def _made_up(name: str) -> float:
    """A steady value that fits the unit in the name."""
    size = sum(name.encode()) % 997 + 3
    if "godebug" in name:
        return 0
    if name.endswith(("_bytes", "_bytes_total")):
        return size * 12_347.0
    return size / 1000.0 if "seconds" in name else float(size)


def _go() -> list[Block]:
    blocks = []
    for prefix, names, suffix, text in _GROUPS:
        for short in names:
            name = f"{prefix}{short}{suffix}"
            words = text.format(words=short.replace("_", " "))
            blocks.append(family(name, _kind(name), f"Simulated: {words}.", [({}, _made_up(name))]))
    for short in _PAUSES:
        text = "Simulated: how long goroutines waited or stood still under this heading."
        blocks.append(histogram(f"go_{short}_seconds", text, _PAUSE_BOUNDS, [({}, 4096, 0.031)]))
    for short in ("allocs", "frees"):
        text = "Simulated: sizes of heap objects, tiny ones left out."
        blocks.append(histogram(f"go_gc_heap_{short}_by_size_bytes", text, _SIZE_BOUNDS, [({}, 404_770, 37_274_288.0)]))
    quantiles = "".join(
        f'go_gc_duration_seconds{{quantile="{at}"}} {value}\n'
        for at, value in zip((0, 0.25, 0.5, 0.75, 1), (2.1e-05, 9.6e-05, 0.00069, 0.0028, 0.0031), strict=True)
    )
    summary = head("go_gc_duration_seconds", "summary", "Simulated: how long collections stopped the world.")
    totals = "go_gc_duration_seconds_sum 0.0077\ngo_gc_duration_seconds_count 8\n"
    blocks.append(("go_gc_duration_seconds", f"{summary}{quantiles}{totals}"))
    blocks += [
        family("go_cgo_go_to_c_calls_calls_total", "counter", "Simulated: calls from Go into C.", [({}, 1)]),
        family("go_goroutines", "gauge", "Simulated: goroutines that exist now.", [({}, 38)]),
        family("go_info", "gauge", "Simulated: the toolchain.", [({"version": "go1.26.6"}, 1)]),
        family("go_sync_mutex_wait_total_seconds_total", "counter", "Simulated: time waited for locks.", [({}, 0.04)]),
        family("go_threads", "gauge", "Simulated: threads that exist now.", [({}, 9)]),
    ]
    return blocks


def _controller(*, kubernetes: bool) -> list[Block]:
    names = (
        "certwatcher_read_certificate_errors_total",
        "certwatcher_read_certificate_total",
        "controller_runtime_conversion_webhook_panics_total",
        "controller_runtime_webhook_panics_total",
    )
    blocks = [family(name, "counter", "Simulated: a counter of the controller runtime.", [({}, 0)]) for name in names]
    if not kubernetes:
        return blocks
    controllers = ("inferencepool", "pod")
    reconciled = [
        ({"controller": at, "result": result}, 7 if result == "success" else 0)
        for at in controllers
        for result in ("error", "requeue", "requeue_after", "success")
    ]
    blocks.append(family("controller_runtime_reconcile_total", "counter", "Simulated: reconciliations.", reconciled))
    for short in _WORKQUEUE:
        depth = [({"controller": at, "name": at}, 12 if short == "adds_total" else 0) for at in controllers]
        name = f"workqueue_{short}"
        blocks.append(family(name, _kind(name), "Simulated: the work queue of a controller.", depth))
    for short in ("queue", "work"):
        waits = [({"controller": at, "name": at}, 12, 0.002) for at in controllers]
        text = f"Simulated: time that items spent in the {short} stage."
        blocks.append(histogram(f"workqueue_{short}_duration_seconds", text, _WAIT_BOUNDS, waits))
    calls = [({"code": "200", "host": "10.96.0.1:443", "method": method}, 17) for method in ("GET", "POST")]
    blocks.append(family("rest_client_requests_total", "counter", "Simulated: calls to the API server.", calls))
    return blocks


@cache
def static(*, kubernetes: bool) -> tuple[Block, ...]:
    """Everything that does not move, sorted by name."""
    process = [
        family("process_max_fds", "gauge", "Simulated: limit of open files.", [({}, 20_000)]),
        family("process_open_fds", "gauge", "Simulated: open files.", [({}, 15)]),
        family("process_virtual_memory_bytes", "gauge", "Simulated: virtual memory.", [({}, 1.36308736e9)]),
        family("process_virtual_memory_max_bytes", "gauge", "Simulated: its limit.", [({}, 1.8446744073709552e19)]),
        family("process_network_receive_bytes_total", "counter", "Simulated: bytes received.", [({}, 4.45161584e8)]),
        family("process_network_transmit_bytes_total", "counter", "Simulated: bytes sent.", [({}, 5.157976e6)]),
    ]
    return tuple(sorted([*_controller(kubernetes=kubernetes), *_go(), *process]))


def process(*, started_at: float, age: float) -> list[Block]:
    """What moves: the start in wall-clock s, and CPU and memory that grow with ``age`` in s."""
    cpu = round(0.4 + age * 0.03, 2)
    resident = float(int(6.3e7 + min(age, 3600.0) * 1000.0))
    start = round(started_at, 2)
    return [
        family("process_cpu_seconds_total", "counter", "Simulated: CPU time used.", [({}, cpu)]),
        family("process_resident_memory_bytes", "gauge", "Simulated: resident memory.", [({}, resident)]),
        family("process_start_time_seconds", "gauge", "Simulated: when the process started.", [({}, start)]),
    ]
