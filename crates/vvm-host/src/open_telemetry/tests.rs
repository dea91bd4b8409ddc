use crate::{
    Host, HostOutcome, HostSettings, Loss, Problem, Ttl,
    http::Answers,
    metrics::{HOST, SERVICES},
    service_fn,
    status::tests::key,
    successor::{SuccessorSettings, UdpPeerLink},
    testing::{MemDatabase, MockClock, MockSysVvmStorage, Step, StepOutcome, WriteError, env, in_mock_time},
};
use ielections::successor::SupportPeriod;
use opentelemetry::{KeyValue, trace::Status};
use opentelemetry_otlp::{MetricExporter, SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::{
    metrics::{
        InMemoryMetricExporter, PeriodicReader, SdkMeterProvider,
        data::{AggregatedMetrics, MetricData},
    },
    trace::{BatchConfigBuilder, BatchSpanProcessor, InMemorySpanExporter, SdkTracerProvider, SpanData},
};
use primary_only::{BoxError, RegistryBuilder, RegistryConfig, RunContext, Service, Task, TermInterrupted};
use std::{
    collections::BTreeMap,
    io::Read as _,
    net::{TcpListener, TcpStream},
    sync::{Arc, mpsc},
    time::Duration,
};
use tokio::runtime::Builder;
use vvm_clock::Clock;

type Values = BTreeMap<String, f64>;

fn by_prometheus(answers: &Answers) -> Values {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &answers.metrics).unwrap();
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let value = |line: &str| {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = series.trim_end_matches('}').split_once('{').unwrap_or((series, ""));
        let labels = labels.split(',').filter_map(|label| label.split_once('='));
        (series_of(name, labels.map(|(key, value)| (key, value.trim_matches('"')))), value.parse().unwrap())
    };
    let mut values = samples.map(value).collect::<Values>();
    if values["vvm_renewal_latency_seconds_count{name=payroll}"] == 0.0 {
        // A histogram without a value is not exported.
        values.retain(|series, _| !series.starts_with("vvm_renewal_latency"));
    }
    values
}

fn series_of<'l>(name: &str, labels: impl Iterator<Item = (&'l str, &'l str)>) -> String {
    let of_bucket = |(key, value): (&str, &str)| match key {
        "le" => format!("le={}", value.parse::<f64>().unwrap()),
        _ => format!("{key}={value}"),
    };
    let mut labels = labels.map(of_bucket).collect::<Vec<_>>();
    labels.sort();
    format!("{name}{{{}}}", labels.join(","))
}

/// The values of the last export, named as a converter to Prometheus names them.
fn by_open_telemetry(exporter: &InMemoryMetricExporter) -> Values {
    let exports = exporter.get_finished_metrics().unwrap();
    let mut values = Values::new();
    let mut add = |name: String, labels: Vec<&KeyValue>, more: Option<(&str, String)>, value: f64| {
        let labels = labels
            .into_iter()
            .map(|label| (label.key.as_str().to_owned(), label.value.as_str().into_owned()));
        let more = more.into_iter().map(|(key, value)| (key.to_owned(), value));
        let labels = labels.chain(more).collect::<Vec<_>>();
        let labels = labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        assert_eq!(values.insert(series_of(&name, labels), value), None, "observed twice");
    };
    let export = exports.last().unwrap();
    for metric in export.scope_metrics().flat_map(|scope| scope.metrics()) {
        let unit = if metric.unit() == "s" { "_seconds" } else { "" };
        let name = format!("{}{unit}", metric.name());
        match metric.data() {
            AggregatedMetrics::U64(MetricData::Gauge(gauge)) => gauge
                .data_points()
                .for_each(|of| add(name.clone(), of.attributes().collect(), None, of.value() as f64)),
            AggregatedMetrics::F64(MetricData::Gauge(gauge)) => gauge
                .data_points()
                .for_each(|of| add(name.clone(), of.attributes().collect(), None, of.value())),
            AggregatedMetrics::U64(MetricData::Sum(sum)) if sum.is_monotonic() => {
                for of in sum.data_points() {
                    add(format!("{name}_total"), of.attributes().collect(), None, of.value() as f64);
                }
            }
            AggregatedMetrics::F64(MetricData::Histogram(histogram)) => {
                for of in histogram.data_points() {
                    let labels = || of.attributes().collect::<Vec<_>>();
                    add(format!("{name}_sum"), labels(), None, of.sum());
                    add(format!("{name}_count"), labels(), None, of.count() as f64);
                    let mut up_to = 0;
                    for (bound, count) in of.bounds().chain([f64::INFINITY]).zip(of.bucket_counts()) {
                        up_to += count;
                        let bound = Some(("le", bound.to_string()));
                        add(format!("{name}_bucket"), labels(), bound, up_to as f64);
                    }
                }
            }
            other => panic!("{}: {other:?}", metric.name()),
        }
    }
    values
}

struct Waiting;

impl Service for Waiting {
    type Id = String;
    type Doc = u64;
    type Task = Self;
    const NAME: &'static str = "waiting";

    fn build(&self, _id: &String, _doc: &u64) -> Result<Self, BoxError> {
        Ok(Self)
    }
}

#[async_trait::async_trait]
impl Task for Waiting {
    type Doc = u64;

    async fn run(&self, mut cx: RunContext<u64>) -> Result<(), BoxError> {
        cx.state.insert().await?;
        cx.stop.cancelled().await;
        Err(TermInterrupted.into())
    }
}

fn host_in_memory(clock: &MockClock) -> Host {
    let database = MemDatabase::new(Arc::new(clock.clone()) as Arc<dyn Clock>);
    Host::on_storage(HostSettings::new("", "payroll"), env(clock), database.open()).unwrap()
}

fn without_spans() -> SdkTracerProvider {
    SdkTracerProvider::builder().build()
}

#[test]
fn every_metric_has_the_name_labels_and_value_that_prometheus_reads() {
    let clock = MockClock::new();
    let (io, period) = (Builder::new_current_thread().enable_io().build().unwrap(), Duration::from_secs(2));
    let link = {
        let _context = io.enter();
        let listen = SuccessorSettings::new(([127, 0, 0, 1], 0).into());
        let period = SupportPeriod::new(period, Ttl::DEFAULT).unwrap();
        Arc::new(UdpPeerLink::bind(&listen, period, &key(), &env(&clock)).unwrap())
    };
    in_mock_time(&clock, async {
        let exporter = InMemoryMetricExporter::default();
        let meters = SdkMeterProvider::builder().with_periodic_exporter(exporter.clone()).build();
        let mut host = host_in_memory(&clock);
        let mut services = RegistryBuilder::new(RegistryConfig::new(host.env()));
        let waiting = services.register(Waiting).unwrap();
        let services = services.build();
        host.show(&services);
        let observation = host.observe(&meters, &without_spans());
        let answers = Answers::new(host.status(), Some(services.clone()));
        let (flushed, exported) = (meters.clone(), exporter.clone());
        let compare = Arc::new(move || {
            let before = by_prometheus(&answers);
            exported.reset();
            flushed.force_flush().unwrap();
            let (observed, after) = (by_open_telemetry(&exported), by_prometheus(&answers));
            assert_eq!(observed.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());
            for (series, value) in observed {
                // Only the deadline in Unix time moves: no time passes on the clock.
                let between = before[&series]..=after[&series];
                assert!(between.contains(&value), "{series}: {value}, and {between:?} by Prometheus");
            }
            before
        });
        assert!(!compare().keys().any(|series| series.starts_with("vvm_epoch")), "it does not lead");
        // Without these, three metrics have no sample.
        host.status().exited(3);
        host.status().shows_link(&link);
        let stop = host.stop();
        let ended = host.run(|| {
            let (services, waiting, stop) = (services.clone(), waiting.clone(), stop.clone());
            let (time, compare) = (clock.clone(), Arc::clone(&compare));
            vec![service_fn("work", async move |cx| {
                let checking = async {
                    waiting.get_or_create("one".into(), 0).await.unwrap();
                    time.sleep(Duration::from_secs(60)).await;
                    let values = compare();
                    assert!(values["vvm_renewal_latency_seconds_count{name=payroll}"] >= 8.0, "{values:?}");
                    let names = HOST.iter().map(|of| of.name).chain(SERVICES.iter().map(|of| of.name));
                    let missing = names.filter(|name| !values.keys().any(|key| key.starts_with(name)));
                    assert_eq!(missing.collect::<Vec<_>>(), <[&str; 0]>::default());
                    assert_eq!(values["vvm_service_instances{service=waiting,state=running}"], 1.0);
                    stop.cancel();
                };
                let (led, ()) = tokio::join!(services.lead(cx.standing, cx.stop.clone()), checking);
                Ok(led?)
            })]
        });
        assert!(matches!(ended.await, HostOutcome::Stopped));
        assert_eq!(compare()["vvm_leaderships_total{name=payroll}"], 1.0, "the last values");
        drop(observation);
        exporter.reset();
        meters.force_flush().unwrap();
        let observed = by_open_telemetry(&exporter);
        assert!(observed.keys().all(|series| series.starts_with("vvm_renewal_latency")), "{observed:?}");
    });
}

fn attribute(span: &SpanData, key: &str) -> Option<String> {
    let of = span.attributes.iter().find(|of| of.key.as_str() == key);
    of.map(|of| of.value.as_str().into_owned())
}

#[test]
fn span_of_a_leadership_that_was_lost_has_its_end_and_its_reason() {
    let mut storage = MockSysVvmStorage::vacant();
    storage.expect_commit().returning(|_, step| match step {
        Step::Renew { .. } => Err(WriteError::NotApplied("the disk is full".into())),
        _ => Ok(StepOutcome::Applied),
    });
    let (exporter, clock) = (InMemorySpanExporter::default(), MockClock::new());
    let tracers = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    in_mock_time(&clock, async {
        let settings = HostSettings::new("", "payroll");
        let mut host = Host::on_storage(settings, env(&clock), Arc::new(storage)).unwrap();
        let _observation = host.observe(&SdkMeterProvider::default(), &tracers);
        let ended = host.run(|| {
            vec![service_fn("work", async |cx| {
                cx.stop.cancelled().await;
                Ok(())
            })]
        });
        let ended = ended.await;
        let HostOutcome::Problem(Problem::Lost(Loss::StorageUnreachable { .. })) = ended else {
            panic!("{ended}")
        };
        let spans = exporter.get_finished_spans().unwrap();
        let [span] = &spans[..] else { panic!("{spans:?}") };
        assert_eq!(span.name, "vvm.leadership");
        let expected = [("name", "payroll"), ("slot", "1"), ("end", "lost"), ("loss", "storage_unreachable")];
        for (key, value) in expected {
            assert_eq!(attribute(span, &format!("vvm.{key}")).as_deref(), Some(value), "{span:?}");
        }
        let reason = attribute(span, "vvm.reason").unwrap();
        assert!(reason.starts_with("leadership lost: ") && reason.contains("the disk is full"), "{reason}");
        assert_eq!(span.status, Status::error(reason));
    });
}

/// Returns the paths of two requests, and their connections, which stay open.
fn requests(listener: TcpListener) -> mpsc::Receiver<(String, TcpStream)> {
    let (found, requests) = mpsc::channel();
    let accept = move || {
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                head.push(byte[0]);
            }
            let _ = found.send((String::from_utf8(head).unwrap(), stream));
        }
    };
    std::thread::Builder::new().name("collector".into()).spawn(accept).unwrap();
    requests
}

/// The collector accepts connections and never answers. In mock time a host that waited for it would never end.
#[test]
fn collector_that_hangs_delays_no_renewal_and_no_end() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let collector = format!("http://{}", listener.local_addr().unwrap());
    let requests = requests(listener);
    let spans = SpanExporter::builder().with_http().with_endpoint(format!("{collector}/v1/traces"));
    let often = BatchConfigBuilder::default().with_scheduled_delay(Duration::from_millis(1)).build();
    let spans = BatchSpanProcessor::builder(spans.build().unwrap()).with_batch_config(often).build();
    let tracers = SdkTracerProvider::builder().with_span_processor(spans).build();
    let metrics = MetricExporter::builder().with_http().with_endpoint(format!("{collector}/v1/metrics"));
    let metrics = PeriodicReader::builder(metrics.build().unwrap()).with_interval(Duration::from_millis(1));
    let meters = SdkMeterProvider::builder().with_reader(metrics.build()).build();
    let clock = MockClock::new();
    let lead_a_minute = || {
        in_mock_time(&clock, async {
            let mut host = host_in_memory(&clock);
            let _observation = host.observe(&meters, &tracers);
            let status = host.status();
            let ended = host.run(|| {
                let clock = clock.clone();
                vec![service_fn("work", async move |_| {
                    clock.sleep(Duration::from_secs(60)).await;
                    Ok(())
                })]
            });
            let ended = ended.await;
            assert!(matches!(ended, HostOutcome::Problem(Problem::Ended { .. })), "{ended}");
            assert!(status.telemetry.renewals.read().count >= 8, "a minute has passed");
        });
    };
    lead_a_minute();
    let mut hanging = [requests.recv().unwrap(), requests.recv().unwrap()];
    hanging.sort_by(|(one, _), (other, _)| one.cmp(other));
    assert!(hanging[0].0.starts_with("POST /v1/metrics ") && hanging[1].0.starts_with("POST /v1/traces "));
    lead_a_minute();
    drop(hanging);
    let _ = (meters.shutdown(), tracers.shutdown());
}
