//! Hashes.

use std::collections::BTreeMap;

use super::{Call, Fault, Fields, Keys, Known, Needs, OVERFLOW, Value, WRONG_TYPE};
use super::{integer, integer_or_fault, known, wrong_number};
use crate::resp::encode;

pub(super) const COMMANDS: [Known; 13] = [
    known("hget", 3, Keys::First, Needs::Collections, get),
    known("hset", -4, Keys::First, Needs::Collections, set),
    known("hmset", -4, Keys::First, Needs::Collections, set),
    known("hsetnx", 4, Keys::First, Needs::Collections, set_if_absent),
    known("hdel", -3, Keys::First, Needs::Collections, delete),
    known("hgetall", 2, Keys::First, Needs::Collections, get_all),
    known("hkeys", 2, Keys::First, Needs::Collections, fields),
    known("hvals", 2, Keys::First, Needs::Collections, values),
    known("hmget", -3, Keys::First, Needs::Collections, get_many),
    known("hexists", 3, Keys::First, Needs::Collections, exists),
    known("hlen", 2, Keys::First, Needs::Collections, count),
    known("hstrlen", 3, Keys::First, Needs::Collections, length),
    known("hincrby", 4, Keys::First, Needs::Collections, add),
];

fn change<T>(
    call: &mut Call<'_>,
    change: impl FnOnce(&mut Fields) -> Result<T, Fault>,
) -> Result<T, Fault> {
    call.overlay.hash(call.at(1))?;
    call.overlay.change(call.at(1), Value::Hash(Fields::new()), |value| match value {
        Value::Hash(fields) => change(fields),
        _ => Err(WRONG_TYPE.into()),
    })
}

fn one<'a>(call: &'a Call<'_>) -> Result<Option<&'a [u8]>, Fault> {
    let fields = call.overlay.hash(call.at(1))?;
    Ok(fields.and_then(|fields| fields.get(call.at(2))).map(Vec::as_slice))
}

fn get(call: &mut Call<'_>) -> Result<(), Fault> {
    let value = one(call)?.map(<[u8]>::to_vec);
    call.bulk(value.as_deref());
    Ok(())
}

fn set(call: &mut Call<'_>) -> Result<(), Fault> {
    let pairs = call.rest();
    if !pairs.len().is_multiple_of(2) {
        return Err(wrong_number(call.name));
    }
    let added = change(call, |fields| {
        let pairs = pairs.chunks_exact(2);
        let new = pairs.filter(|pair| fields.insert(pair[0].clone(), pair[1].clone()).is_none());
        Ok(new.count())
    })?;
    if call.name == "hmset" {
        call.ok();
    } else {
        call.count(added);
    }
    Ok(())
}

fn set_if_absent(call: &mut Call<'_>) -> Result<(), Fault> {
    let is_there = one(call)?.is_some();
    if !is_there {
        let (field, value) = (call.at(2).to_vec(), call.at(3).to_vec());
        change(call, |fields| Ok(fields.insert(field, value)))?;
    }
    call.integer(i64::from(!is_there));
    Ok(())
}

fn delete(call: &mut Call<'_>) -> Result<(), Fault> {
    let names = call.rest();
    let gone = match call.overlay.hash(call.at(1))? {
        None => 0,
        Some(_) => change(call, |fields| {
            Ok(names.iter().filter(|name| fields.remove(*name).is_some()).count())
        })?,
    };
    call.count(gone);
    Ok(())
}

fn get_all(call: &mut Call<'_>) -> Result<(), Fault> {
    let none = Fields::new();
    let fields = call.overlay.hash(call.at(1))?.unwrap_or(&none);
    encode::map(call.out, fields.len(), call.protocol);
    for (field, value) in fields {
        encode::bulk(call.out, field);
        encode::bulk(call.out, value);
    }
    Ok(())
}

fn fields(call: &mut Call<'_>) -> Result<(), Fault> {
    let none = Fields::new();
    let fields = call.overlay.hash(call.at(1))?.unwrap_or(&none);
    encode::array(call.out, fields.len());
    fields.keys().for_each(|field| encode::bulk(call.out, field));
    Ok(())
}

fn values(call: &mut Call<'_>) -> Result<(), Fault> {
    let none = Fields::new();
    let fields = call.overlay.hash(call.at(1))?.unwrap_or(&none);
    encode::array(call.out, fields.len());
    fields.values().for_each(|value| encode::bulk(call.out, value));
    Ok(())
}

fn get_many(call: &mut Call<'_>) -> Result<(), Fault> {
    let names = call.rest();
    let none = Fields::new();
    let fields = call.overlay.hash(call.at(1))?.unwrap_or(&none);
    encode::array(call.out, names.len());
    for name in names {
        match fields.get(name) {
            Some(value) => encode::bulk(call.out, value),
            None => encode::null(call.out, call.protocol),
        }
    }
    Ok(())
}

fn exists(call: &mut Call<'_>) -> Result<(), Fault> {
    let is_there = one(call)?.is_some();
    call.integer(i64::from(is_there));
    Ok(())
}

fn count(call: &mut Call<'_>) -> Result<(), Fault> {
    let count = call.overlay.hash(call.at(1))?.map_or(0, BTreeMap::len);
    call.count(count);
    Ok(())
}

fn length(call: &mut Call<'_>) -> Result<(), Fault> {
    let length = one(call)?.map_or(0, <[u8]>::len);
    call.count(length);
    Ok(())
}

fn add(call: &mut Call<'_>) -> Result<(), Fault> {
    let by = integer_or_fault(call.at(3))?;
    let value = match one(call)? {
        Some(text) => integer(text).ok_or("ERR hash value is not an integer")?,
        None => 0,
    };
    let sum = value.checked_add(by).ok_or(OVERFLOW)?;
    let (field, text) = (call.at(2).to_vec(), itoa::Buffer::new().format(sum).into());
    change(call, |fields| Ok(fields.insert(field, text)))?;
    call.integer(sum);
    Ok(())
}
