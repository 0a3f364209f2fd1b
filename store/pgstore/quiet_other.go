//go:build !linux

package pgstore

import "net"

func quiet(conn net.Conn) net.Conn { return conn }
