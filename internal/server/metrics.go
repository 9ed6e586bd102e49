package server

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/airlock-sandbox/airlock/internal/admission"
	"github.com/airlock-sandbox/airlock/internal/container"
	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/usage"
)

// serverMetrics is a registry of its own, so that two servers in one process do not share numbers.
type serverMetrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	inFlight prometheus.Gauge
}

func newMetrics(sandboxes func() int) *serverMetrics {
	m := &serverMetrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "airlock_http_requests_total", Help: "Answered requests by route and status.",
		}, []string{"route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "airlock_http_request_duration_seconds", Help: "Time until the end of the answer.",
			Buckets: []float64{.001, .005, .02, .1, .5, 2, 10, 60, 300, 1800},
		}, []string{"route"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "airlock_http_requests_in_flight", Help: "Requests being answered.",
		}),
	}
	live := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "airlock_sandbox_live_count", Help: "Sandboxes that run or are frozen.",
	}, func() float64 { return float64(sandboxes()) })
	m.registry.MustRegister(m.requests, m.seconds, m.inFlight, live,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// watchRoom shows what memory and disk have no room for.
func (m *serverMetrics) watchRoom(a *admission.Queue, g *guard) {
	m.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "airlock_admission_waiting_count", Help: "Sandboxes that wait for memory to start.",
		}, func() float64 { return float64(a.Waiting()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "airlock_disk_refused_total", Help: "Requests refused because the disk of the data folder is filling up.",
		}, func() float64 { return float64(g.refused.Load()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "airlock_disk_used_ratio", Help: "Share of the disk of the data folder that is in use.",
		}, g.used),
	)
	for reason := range a.Refused() {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "airlock_admission_refused_total", Help: "Sandboxes that were not started, by what was lacking.",
			ConstLabels: prometheus.Labels{"reason": reason},
		}, func() float64 { return float64(a.Refused()[reason]) }))
	}
}

// showDriver tells what stands between tenants; an alert on shared_kernel="true" sees what auto chose.
func (m *serverMetrics) showDriver(caps sandbox.Capabilities) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "airlock_sandbox_driver_info", Help: "Always 1; the labels say which driver makes sandboxes.",
		ConstLabels: prometheus.Labels{"driver": caps.Driver, "shared_kernel": strconv.FormatBool(!caps.Kernel)},
	}, func() float64 { return 1 }))
}

// watchAccounts shows what code waits, and that usage is not written down.
func (m *serverMetrics) watchAccounts(c *container.Service, u *usage.Log) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "airlock_parked_count", Help: "Cells whose code waits for the client's answer to a call.",
	}, func() float64 { return float64(c.ParkedCount()) }))
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "airlock_executions_dropped_total", Help: "Executions whose account could not be written to the database and is lost.",
	}, func() float64 { return float64(u.Dropped()) }))
}

// measure counts a route. Its labels come from the table and the status alone, so their number is bounded.
func (m *serverMetrics) measure(route string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		m.inFlight.Inc()
		rec := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		defer func() {
			// Runs during the panic of an aborted answer, too.
			m.inFlight.Dec()
			m.seconds.WithLabelValues(route).Observe(time.Since(began).Seconds())
			m.requests.WithLabelValues(route, strconv.Itoa(rec.status)).Inc()
		}()
		next.ServeHTTP(rec, r)
	})
}

type statusWriter struct {
	http.ResponseWriter
	status int
	wrote  bool
}

// Unwrap lets http.ResponseController reach the connection.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *statusWriter) WriteHeader(code int) {
	if code >= 200 && !w.wrote {
		w.status, w.wrote = code, true
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *statusWriter) Write(b []byte) (int, error) {
	w.wrote = true
	return w.ResponseWriter.Write(b)
}

func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request, _ tenant.Caller) error {
	promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	return nil
}
