// Package shardkey says which shard a key belongs to.
package shardkey

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
)

// Shard is the shard of a key, for ever: the first four bytes of its SHA-256,
// big-endian, without the top bit, modulo the number of shards. An empty key
// takes any. The SQL function shard_of computes the same.
func Shard(key string, shards int) int {
	if key == "" {
		return rand.IntN(shards)
	}
	sum := sha256.Sum256([]byte(key))
	return int(binary.BigEndian.Uint32(sum[:])&0x7fffffff) % shards
}
