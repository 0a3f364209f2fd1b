package main

import (
	"os"
	"runtime/debug"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/postrider/postrider/config"
)

// memoryBase is what the process takes besides messages.
const memoryBase = 64 << 20

// limitMemory has the garbage collector work harder above twice the bytes that
// may be in flight, unless GOMEMLIMIT says something else: garbage adds nothing
// to the most that the process takes.
func limitMemory(c *config.Config) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(2*int64(c.Limits.InFlightBytes) + memoryBase)
	}
}

// connections shows how a pool stands against its limit.
type connections struct{ pool *pgxpool.Pool }

var (
	connectionsUsed  = prometheus.NewDesc("postrider_connections", "Connections to the database, by what they do: working, or idle.", []string{"state"}, nil)
	connectionsLimit = prometheus.NewDesc("postrider_connections_limit", "The most connections to the database.", nil, nil)
	connectionsWait  = prometheus.NewDesc("postrider_connections_wait_seconds_total", "How long calls have waited for a connection, over all calls.", nil, nil)
	connectionsMade  = prometheus.NewDesc("postrider_connections_made_total", "Connections that were made.", nil, nil)
)

func (connections) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{connectionsUsed, connectionsLimit, connectionsWait, connectionsMade} {
		ch <- d
	}
}

func (c connections) Collect(ch chan<- prometheus.Metric) {
	s := c.pool.Stat()
	ch <- prometheus.MustNewConstMetric(connectionsUsed, prometheus.GaugeValue, float64(s.AcquiredConns()), "working")
	ch <- prometheus.MustNewConstMetric(connectionsUsed, prometheus.GaugeValue, float64(s.IdleConns()), "idle")
	ch <- prometheus.MustNewConstMetric(connectionsLimit, prometheus.GaugeValue, float64(s.MaxConns()))
	ch <- prometheus.MustNewConstMetric(connectionsWait, prometheus.CounterValue, s.EmptyAcquireWaitTime().Seconds())
	ch <- prometheus.MustNewConstMetric(connectionsMade, prometheus.CounterValue, float64(s.NewConnsCount()))
}
